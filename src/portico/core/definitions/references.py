"""The references of one schema: their targets, and the size of the schema when they are expanded.

A few lines can expand into 2^40 checks through references alone, and the validator runs them all;
so the expanded size is limited before a schema is compiled.
"""

from typing import Any

from portico.core.definitions.definition_error import SchemaError
from portico.core.definitions.keywords import REFERENCES, SCHEMA_STORES, Location, subschemas
from portico.core.definitions.wording import dotted, render

MAX_UNFOLDED = 1_000_000
MAX_CHAIN = 300
"""The limit of nested references, which protects the validator's stack."""

_BUILT_IN = ("https://json-schema.org/draft/", "http://json-schema.org/draft-")
"""The meta-schemas, which the validator includes."""


class References:
    """The schemas of one document, by every name that a reference can use."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._bases: dict[int, str] = {}
        self._named: dict[str, Location] = {}
        self._referring: list[tuple[Location, dict[str, Any]]] = []
        self._sizes: dict[int, int] = {}
        self._index(root)

    @property
    def has_any(self) -> bool:
        """True if the schema has references."""
        return bool(self._referring)

    def check(self) -> None:
        """Raise SchemaError if a reference has no target, or the expanded schema is too large."""
        for location, schema in self._referring:
            for keyword, reference in _references(schema):
                if self.target(schema, reference) is None and not reference.startswith(_BUILT_IN):
                    why = f"{render(reference)} is not in this schema"
                    if not reference.startswith("#"):
                        why += "; other documents are never fetched"
                    raise SchemaError(why, field=dotted((*location, keyword)))
        if self._unfolded_size(self._root, 0) > MAX_UNFOLDED:
            raise SchemaError(f"expands through its references to more than {MAX_UNFOLDED} parts")

    def target(self, schema: dict[str, Any], reference: str) -> Location | None:
        """Return the location of a reference's target, or None if it is not in the document."""
        base = self._bases.get(id(schema), self._bases.get(id(self._root), ""))
        address, _, fragment = _join(base, reference).partition("#")
        if not fragment.startswith("/"):
            return self._named.get(f"{address}#{fragment}")
        start = self._named.get(f"{address}#")
        return None if start is None else self._resolve_pointer(start, fragment)

    def at(self, location: Location) -> Any:
        """Return the value at a location."""
        value = self._root
        for part in location:
            value = value[part]
        return value

    def _index(self, root: Any) -> None:
        pending: list[tuple[Location, Any, str]] = [((), root, "")]
        while pending:
            location, schema, base = pending.pop()
            if not isinstance(schema, dict):
                continue
            base = self._register(location, schema, base)
            if any(keyword in schema for keyword in REFERENCES):
                self._referring.append((location, schema))
            pending.extend(((*location, *step), inner, base) for step, inner in subschemas(schema))

    def _register(self, location: Location, schema: dict[str, Any], base: str) -> str:
        """Register the names of a schema; return the base of the references in it."""
        own = schema.get("$id", schema.get("id"))
        if isinstance(own, str) and not own.startswith("#"):
            base = _join(base, own).partition("#")[0]
            self._named[f"{base}#"] = location
        elif isinstance(own, str):
            self._named[f"{base}{own}"] = location  # an anchor of draft-06 and 07
        if not location:
            self._named.setdefault("#", location)
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(schema.get(keyword), str):
                self._named[f"{base}#{schema[keyword]}"] = location
        self._bases[id(schema)] = base
        return base

    def _resolve_pointer(self, start: Location, pointer: str) -> Location | None:
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

    def _unfolded_size(self, schema: Any, depth: int) -> int:
        """Return the number of schemas if every reference is replaced by its target.

        A recursive reference counts once: the validator caches its outcome.
        """
        if not isinstance(schema, dict):
            return 1
        known = self._sizes.get(id(schema))
        if known is not None:
            return known
        if depth > MAX_CHAIN:
            raise SchemaError(f"its references are nested more than {MAX_CHAIN} schemas deep")
        self._sizes[id(schema)] = 1
        inside = [inner for step, inner in subschemas(schema) if step[0] not in SCHEMA_STORES]
        for _, reference in _references(schema):
            location = self.target(schema, reference)
            if location is not None:
                inside.append(self.at(location))
        size = 1 + sum(self._unfolded_size(inner, depth + 1) for inner in inside)
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
