"""Where the `$ref`s of one schema point, and how much following them multiplies it.

A schema of a few lines can unfold into 2^40 checks through references alone, and the validator
does them all; so what a schema unfolds to is counted before it is compiled.
"""

from typing import Any

from portico.definitions.definition_error import SchemaError
from portico.definitions.keywords import REFERENCES, STORES, Location, subschemas
from portico.definitions.wording import dotted, render

MAX_UNFOLDED = 1_000_000
MAX_CHAIN = 300
"""How deep references may lead through schemas; the validator's stack bounds it."""

_BUILT_IN = ("https://json-schema.org/draft/", "http://json-schema.org/draft-")
"""The meta-schemas: the validator brings them along."""


class References:
    """The schemas of one document by all the names they can be referred to."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._bases: dict[int, str] = {}
        self._named: dict[str, Location] = {}
        self._pointing: list[tuple[Location, dict[str, Any]]] = []
        self._sizes: dict[int, int] = {}
        self._index(root)

    @property
    def any(self) -> bool:
        """True if there are references at all."""
        return bool(self._pointing)

    def check(self) -> None:
        """Raise SchemaError if a reference leads nowhere or all of them unfold into too much."""
        for location, schema in self._pointing:
            for keyword, reference in _references(schema):
                if self.target(schema, reference) is None and not reference.startswith(_BUILT_IN):
                    why = f"{render(reference)} is not in this schema"
                    if not reference.startswith("#"):
                        why += ", and other documents are never fetched"
                    raise SchemaError(why, field=dotted((*location, keyword)))
        if self._unfolded(self._root, 0) > MAX_UNFOLDED:
            raise SchemaError(f"unfolds through its references into more than {MAX_UNFOLDED} parts")

    def target(self, schema: dict[str, Any], reference: str) -> Location | None:
        """Where a reference in this schema leads, or None if that is not in the document."""
        base = self._bases.get(id(schema), self._bases.get(id(self._root), ""))
        address, _, fragment = _join(base, reference).partition("#")
        if not fragment.startswith("/"):
            return self._named.get(f"{address}#{fragment}")
        start = self._named.get(f"{address}#")
        return None if start is None else self._pointed(start, fragment)

    def at(self, location: Location) -> Any:
        """The value at a location."""
        value = self._root
        for part in location:
            value = value[part]
        return value

    def _index(self, root: Any) -> None:
        waiting: list[tuple[Location, Any, str]] = [((), root, "")]
        while waiting:
            location, schema, base = waiting.pop()
            if not isinstance(schema, dict):
                continue
            base = self._names(location, schema, base)
            if any(keyword in schema for keyword in REFERENCES):
                self._pointing.append((location, schema))
            waiting.extend(((*location, *way), inner, base) for way, inner in subschemas(schema))

    def _names(self, location: Location, schema: dict[str, Any], base: str) -> str:
        """Note what a schema is called, and answer the base for references within it."""
        own = schema.get("$id", schema.get("id"))
        if isinstance(own, str) and not own.startswith("#"):
            base = _join(base, own).partition("#")[0]
            self._named[f"{base}#"] = location
        elif isinstance(own, str):
            self._named[f"{base}{own}"] = location  # an anchor, as draft-06 and 07 write it
        if not location:
            self._named.setdefault("#", location)
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(schema.get(keyword), str):
                self._named[f"{base}#{schema[keyword]}"] = location
        self._bases[id(schema)] = base
        return base

    def _pointed(self, start: Location, pointer: str) -> Location | None:
        """Follow a JSON pointer (RFC 6901) from the start of a schema resource."""
        location: list[str | int] = list(start)
        value = self.at(start)
        for part in _unescaped(pointer).split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(value, dict) and key in value:
                location.append(key)
                value = value[key]
            elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
                location.append(int(key))
                value = value[int(key)]
            else:
                return None
        return tuple(location)

    def _unfolded(self, schema: Any, depth: int) -> int:
        """How many schemas there are if every reference is replaced by what it points at.

        A reference back to a schema that is being unfolded counts once: those are the ones
        whose outcomes the validator remembers.
        """
        if not isinstance(schema, dict):
            return 1
        known = self._sizes.get(id(schema))
        if known is not None:
            return known
        if depth > MAX_CHAIN:
            raise SchemaError(f"its references lead through more than {MAX_CHAIN} schemas")
        self._sizes[id(schema)] = 1
        inside = [inner for way, inner in subschemas(schema) if way[0] not in STORES]
        for _, reference in _references(schema):
            location = self.target(schema, reference)
            if location is not None:
                inside.append(self.at(location))
        size = 1 + sum(self._unfolded(inner, depth + 1) for inner in inside)
        self._sizes[id(schema)] = min(size, MAX_UNFOLDED + 1)
        return size


def _references(schema: dict[str, Any]) -> list[tuple[str, str]]:
    return [(k, schema[k]) for k in REFERENCES if isinstance(schema.get(k), str)]


def _join(base: str, reference: str) -> str:
    if reference.startswith("#"):
        return base + reference
    if not base:
        return reference
    from urllib.parse import urljoin

    return urljoin(base, reference)


def _unescaped(pointer: str) -> str:
    if "%" not in pointer:
        return pointer
    from urllib.parse import unquote

    return unquote(pointer)
