"""Forms described by a class: their schema, and the submitted content as an instance."""

from typing import Any, Generic, TypeVar

import msgspec

from portico.core.definitions.binding import whole_numbers
from portico.core.definitions.definition_error import DefinitionError
from portico.core.definitions.shapes import decode_model, schemas_of
from portico.core.model.errors import AskError

T = TypeVar("T")
_PRIMITIVE = ("string", "number", "integer", "boolean")
_NULL = {"type": "null"}


class ClassForm(Generic[T]):
    """The form that a dataclass, TypedDict or Struct describes."""

    def __init__(self, kind: type[T]) -> None:
        self._kind = kind
        label = getattr(kind, "__name__", str(kind))
        try:
            (shape,), definitions = schemas_of([kind])
        except (TypeError, NameError, ValueError) as error:
            why = f"has no JSON form: {str(error).strip().rpartition(chr(10))[2][:200]}"
            raise DefinitionError(why, source=f"the form {label}") from None
        whole = _resolved(shape, definitions)
        if whole.get("type") != "object" or "properties" not in whole:
            why = "is not a class with fields; give a dataclass, a TypedDict or a Struct"
            raise DefinitionError(why, source=f"the form {label}")
        required = whole.get("required", [])
        fields: dict[str, Any] = {}
        for name, field in whole["properties"].items():
            fields[name] = _field(field, definitions)
            if not _is_plain(fields[name]):
                why = "is not a string, a number, a boolean or a choice; forms are flat"
                raise DefinitionError(why, source=f"the form {label}", field=name)
        self.schema: dict[str, Any] = {"type": "object", "properties": fields}
        if required:
            self.schema["required"] = required

    def read(self, content: dict[str, Any]) -> T:
        """Return an instance of the class; raise AskError for content that its checks reject."""
        try:
            return msgspec.convert(content, self._kind, dec_hook=decode_model)
        except (msgspec.ValidationError, ValueError) as error:
            try:
                return msgspec.convert(whole_numbers(content), self._kind, dec_hook=decode_model)
            except (msgspec.ValidationError, ValueError):
                raise AskError(f"the client's answer does not match the form: {error}") from None


def _resolved(shape: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema that a reference names."""
    name = str(shape.get("$ref", "")).removeprefix("#/$defs/")
    if name not in definitions:
        return shape
    return {**definitions[name], **{key: value for key, value in shape.items() if key != "$ref"}}


def _field(field: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a form field: with a type, and optional instead of nullable."""
    field = _resolved(field, definitions)
    options = field.get("anyOf")
    if isinstance(options, list):
        types = [option for option in options if option != _NULL]
        if len(types) == 1:
            rest = {key: value for key, value in field.items() if key != "anyOf"}
            field = {**_resolved(types[0], definitions), **rest}
    if field.get("default", 0) is None:
        del field["default"]
    if "type" not in field and all(isinstance(value, str) for value in field.get("enum", [0])):
        field = {"type": "string", **field}
    if field.get("type") == "array" and isinstance(field.get("items"), dict):
        field = {**field, "items": _field(field["items"], definitions)}
    return field


def _is_plain(field: dict[str, Any]) -> bool:
    if field.get("type") == "array":  # several choices (2025-11-25, multi-select)
        return "enum" in field.get("items", {})
    return field.get("type") in _PRIMITIVE
