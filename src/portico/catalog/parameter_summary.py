"""The parameters of a tool in one line, as models and people read them."""

from collections.abc import Mapping
from typing import Any

from portico.catalog.sanitize import sanitize_json

_MAX_PARAMETERS = 30
_MAX_FIELDS = 12
_MAX_OPTIONS = 6
_MAX_CHOICES = 60
_DEEPEST = 6
"""Types within types."""
_DEEPEST_FIELDS = 3
"""Objects within objects whose fields are named."""
_MAX_SCHEMAS = 300
_MAX_NAME = 60


def parameters(schema: Any, *, nulls: bool = False) -> str:
    """Such as `a:string*, b:{c:integer}[]`: a star marks a required one.

    References are followed and the fields of objects are named, as far as one line can hold them.
    With `nulls` a value that may be null says so.
    """
    if not isinstance(schema, Mapping) or not isinstance(schema.get("properties"), Mapping):
        return ""
    return _Compact(schema, nulls).fields(schema, _MAX_PARAMETERS, 0)


class _Compact:
    def __init__(self, root: Mapping[str, Any], nulls: bool) -> None:
        self._root = root
        self._nulls = nulls
        self._left = _MAX_SCHEMAS
        self._open: list[str] = []

    def fields(self, schema: Mapping[str, Any], most: int, deep: int) -> str:
        """The fields of an object, the required ones first."""
        properties = schema["properties"]
        required = schema.get("required")
        listed = required if isinstance(required, list) else []
        needed = {name for name in listed if isinstance(name, str)}
        names = sorted(properties, key=lambda name: name not in needed)
        words = [
            f"{_name(name)}:{self._kind(properties[name], deep)}{'*' if name in needed else ''}"
            for name in names[:most]
        ]
        more = len(names) - len(words)
        return ", ".join([*words, f"and {more} more"] if more else words)

    def _kind(self, schema: Any, deep: int) -> str:
        self._left -= 1
        if not isinstance(schema, Mapping) or deep > _DEEPEST or self._left < 0:
            return "any"
        reference = schema.get("$ref")
        if isinstance(reference, str):
            return self._referred(reference, deep)
        choices = _choices(schema)
        if choices:
            return choices
        kinds = schema.get("type")
        if isinstance(kinds, list):
            return self._one_of([self._typed({**schema, "type": kind}, deep) for kind in kinds])
        if isinstance(kinds, str) or "properties" in schema:
            return self._typed(schema, deep)
        for several in ("anyOf", "oneOf", "allOf"):
            options = schema.get(several)
            if isinstance(options, list) and options:
                # Of several that all apply, the first one with a shape says the most.
                some = options[:_MAX_OPTIONS]
                found = [self._kind(one, deep + 1) for one in some]
                known = [kind for kind in found if kind != "any"]
                if several == "allOf":
                    return known[0] if known else "any"
                return self._one_of(found)
        return "enum" if "enum" in schema or "const" in schema else "any"

    def _typed(self, schema: Mapping[str, Any], deep: int) -> str:
        kind = schema.get("type", "object")
        if kind == "array":
            inner = self._kind(schema.get("items"), deep + 1)
            return f"({inner})[]" if "|" in inner and inner[0] != "{" else f"{inner}[]"
        has_fields = isinstance(schema.get("properties"), Mapping) and schema["properties"]
        if kind == "object" and has_fields and deep < _DEEPEST_FIELDS:
            return f"{{{self.fields(schema, _MAX_FIELDS, deep + 1)}}}"
        return str(kind)[:_MAX_NAME]

    def _one_of(self, kinds: list[str]) -> str:
        distinct = list(dict.fromkeys(kinds))
        shown = [kind for kind in distinct if self._nulls or kind != "null"]
        return "|".join(shown[:_MAX_OPTIONS]) or "null"

    def _referred(self, reference: str, deep: int) -> str:
        """The type behind a reference; one within itself is only called an object."""
        target = self._pointed(reference)
        if target is None or reference in self._open:
            return "object" if reference in self._open else "any"
        self._open.append(reference)
        kind = self._kind(target, deep)
        self._open.pop()
        return kind

    def _pointed(self, reference: str) -> Any:
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
    """Texts to choose from, if they are short."""
    choices = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(choices, list) or not all(isinstance(one, str) and one for one in choices):
        return ""
    words = sanitize_json("|".join(choices[: _MAX_CHOICES + 1]))
    return words if len(words) <= _MAX_CHOICES else ""
