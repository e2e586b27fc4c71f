"""The parameters of a tool in one line, as models and people read them."""

from collections.abc import Mapping
from typing import Any

from portico.core.catalog.sanitize import sanitize_json

_MAX_PARAMETERS = 30
_MAX_FIELDS = 12
_MAX_OPTIONS = 6
_MAX_CHOICES = 60
_MAX_DEPTH = 6
"""The limit of nested types."""
_MAX_FIELD_DEPTH = 3
"""The limit of nested objects whose fields are listed."""
_MAX_SCHEMAS = 300
_MAX_NAME = 60


def parameters(schema: Any, *, nulls: bool = False) -> str:
    """Summarize parameters like `a:string*, b:{c:integer}[]`; a star marks a required one.

    References are followed and the fields of objects are listed, up to limits that keep it short.
    `nulls` includes null among the types.
    """
    if not isinstance(schema, Mapping) or not isinstance(schema.get("properties"), Mapping):
        return ""
    return _Summary(schema, nulls).fields(schema, _MAX_PARAMETERS, 0)


class _Summary:
    def __init__(self, root: Mapping[str, Any], nulls: bool) -> None:
        self._root = root
        self._nulls = nulls
        self._left = _MAX_SCHEMAS
        self._open: list[str] = []

    def fields(self, schema: Mapping[str, Any], limit: int, depth: int) -> str:
        """Return the fields of an object, the required ones first."""
        properties = schema["properties"]
        required = schema.get("required")
        listed = required if isinstance(required, list) else []
        needed = {name for name in listed if isinstance(name, str)}
        names = sorted(properties, key=lambda name: name not in needed)
        words = [
            f"{_name(name)}:{self._kind(properties[name], depth)}{'*' if name in needed else ''}"
            for name in names[:limit]
        ]
        more = len(names) - len(words)
        return ", ".join([*words, f"and {more} more"] if more else words)

    def _kind(self, schema: Any, depth: int) -> str:
        self._left -= 1
        if not isinstance(schema, Mapping) or depth > _MAX_DEPTH or self._left < 0:
            return "any"
        reference = schema.get("$ref")
        if isinstance(reference, str):
            return self._referenced_kind(reference, depth)
        choices = _choices(schema)
        if choices:
            return choices
        kinds = schema.get("type")
        if isinstance(kinds, list):
            return self._one_of([self._typed({**schema, "type": kind}, depth) for kind in kinds])
        if isinstance(kinds, str) or "properties" in schema:
            return self._typed(schema, depth)
        for keyword in ("anyOf", "oneOf", "allOf"):
            options = schema.get(keyword)
            if isinstance(options, list) and options:
                # All of `allOf` apply: the first known type is the most useful.
                some = options[:_MAX_OPTIONS]
                found = [self._kind(one, depth + 1) for one in some]
                known = [kind for kind in found if kind != "any"]
                if keyword == "allOf":
                    return known[0] if known else "any"
                return self._one_of(found)
        return "enum" if "enum" in schema or "const" in schema else "any"

    def _typed(self, schema: Mapping[str, Any], depth: int) -> str:
        kind = schema.get("type", "object")
        if kind == "array":
            inner = self._kind(schema.get("items"), depth + 1)
            return f"({inner})[]" if "|" in inner and inner[0] != "{" else f"{inner}[]"
        has_fields = isinstance(schema.get("properties"), Mapping) and schema["properties"]
        if kind == "object" and has_fields and depth < _MAX_FIELD_DEPTH:
            return f"{{{self.fields(schema, _MAX_FIELDS, depth + 1)}}}"
        return str(kind)[:_MAX_NAME]

    def _one_of(self, kinds: list[str]) -> str:
        distinct = list(dict.fromkeys(kinds))
        shown = [kind for kind in distinct if self._nulls or kind != "null"]
        return "|".join(shown[:_MAX_OPTIONS]) or "null"

    def _referenced_kind(self, reference: str, depth: int) -> str:
        """Return the type that a reference points to; `object` if it is recursive."""
        target = self._target(reference)
        if target is None or reference in self._open:
            return "object" if reference in self._open else "any"
        self._open.append(reference)
        kind = self._kind(target, depth)
        self._open.pop()
        return kind

    def _target(self, reference: str) -> Any:
        if not reference.startswith("#"):
            return None
        value: Any = self._root
        for part in reference[1:].split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(value, Mapping) or key not in value:
                return None
            value = value[key]
        return value


def _name(name: Any) -> str:
    words = " ".join(str(name)[: _MAX_NAME * 4].split())
    return sanitize_json(words if len(words) <= _MAX_NAME else f"{words[: _MAX_NAME - 1]}…")


def _choices(schema: Mapping[str, Any]) -> str:
    """Return the options of an enum, if they are short strings."""
    choices = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(choices, list) or not all(isinstance(one, str) and one for one in choices):
        return ""
    words = sanitize_json("|".join(choices[: _MAX_CHOICES + 1]))
    return words if len(words) <= _MAX_CHOICES else ""
