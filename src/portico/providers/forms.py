"""A form for a person, made of a class: its schema, and an instance of what was filled in."""

from typing import Any, Generic, TypeVar

import msgspec

from portico.definitions.binding import whole_numbers
from portico.definitions.definition_error import DefinitionError
from portico.definitions.shapes import revive, schemas_of
from portico.model.errors import AskError

T = TypeVar("T")
_PRIMITIVE = ("string", "number", "integer", "boolean")
_NULL = {"type": "null"}


class ClassForm(Generic[T]):
    """What a dataclass, TypedDict or Struct asks of a person."""

    def __init__(self, kind: type[T]) -> None:
        self._kind = kind
        label = getattr(kind, "__name__", str(kind))
        try:
            (shape,), definitions = schemas_of([kind])
        except (TypeError, NameError, ValueError) as error:
            why = f"has no JSON form: {str(error).strip().rpartition(chr(10))[2][:200]}"
            raise DefinitionError(why, source=f"the form {label}") from None
        whole = _followed(shape, definitions)
        if whole.get("type") != "object" or "properties" not in whole:
            why = "is not a class with fields; give a dataclass, a TypedDict or a Struct"
            raise DefinitionError(why, source=f"the form {label}")
        required = whole.get("required", [])
        fields: dict[str, Any] = {}
        for name, field in whole["properties"].items():
            fields[name] = _field(field, definitions)
            if not _is_plain(fields[name]):
                why = "is not a text, a number, a yes or no, or a choice: a form is flat"
                raise DefinitionError(why, source=f"the form {label}", field=name)
        self.schema: dict[str, Any] = {"type": "object", "properties": fields}
        if required:
            self.schema["required"] = required

    def read(self, content: dict[str, Any]) -> T:
        """An instance of the class; raises AskError for what its own checks refuse."""
        try:
            return msgspec.convert(content, self._kind, dec_hook=revive)
        except (msgspec.ValidationError, ValueError) as error:
            try:
                return msgspec.convert(whole_numbers(content), self._kind, dec_hook=revive)
            except (msgspec.ValidationError, ValueError):
                raise AskError(f"the client's answer does not fit the form: {error}") from None


def _followed(shape: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema behind a reference."""
    name = str(shape.get("$ref", "")).removeprefix("#/$defs/")
    if name not in definitions:
        return shape
    return {**definitions[name], **{key: of for key, of in shape.items() if key != "$ref"}}


def _field(field: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """One field as forms have it: without null, since it may be left out, and with its type."""
    field = _followed(field, definitions)
    options = field.get("anyOf")
    if isinstance(options, list):
        named = [one for one in options if one != _NULL]
        if len(named) == 1:
            rest = {key: value for key, value in field.items() if key != "anyOf"}
            field = {**_followed(named[0], definitions), **rest}
    if field.get("default", 0) is None:
        del field["default"]
    if "type" not in field and all(isinstance(one, str) for one in field.get("enum", [0])):
        field = {"type": "string", **field}
    if field.get("type") == "array" and isinstance(field.get("items"), dict):
        field = {**field, "items": _field(field["items"], definitions)}
    return field


def _is_plain(field: dict[str, Any]) -> bool:
    if field.get("type") == "array":  # several choices (2025-11-25, multi-select)
        return "enum" in field.get("items", {})
    return field.get("type") in _PRIMITIVE
