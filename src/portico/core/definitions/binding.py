"""The conversion of JSON arguments, or text, to the values of a function's parameters."""

from collections.abc import Callable
from typing import Any

import msgspec

from portico.core.definitions.shapes import decode_model
from portico.core.definitions.signatures import EMPTY, Signature
from portico.core.model.errors import InvalidParams, ToolError

_ABSENT = object()
"""The value of a missing argument, for which the function has its own default."""

Converter = Callable[[dict[str, Any]], dict[str, Any]]
"""Convert JSON arguments to values by parameter, or raise an error for the caller."""


class Derived:
    """A definition derived from a function, and the conversion of its JSON arguments."""

    __slots__ = ("_convert", "_signature", "definition", "wraps_result")

    def __init__(
        self,
        definition: dict[str, Any],
        signature: Signature,
        convert: Converter,
        *,
        wraps_result: bool = False,
    ) -> None:
        self.definition = definition
        self.wraps_result = wraps_result
        """True if the output schema wraps the value in an object with the key `result`."""
        self._signature = signature
        self._convert = convert

    @property
    def context_parameter(self) -> str | None:
        """The parameter that takes the context, if any."""
        return self._signature.context

    def bind(
        self, arguments: dict[str, Any], context: Any = None
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments of the function; a wrong type is the caller's error."""
        values = self._convert(arguments)
        signature = self._signature
        for parameter in signature.parameters:
            if parameter.factory is not None and parameter.name not in values:
                values[parameter.name] = parameter.factory()
        if signature.context is not None:
            values[signature.context] = context
        defaults = signature.positional
        return [values.pop(name, default) for name, default in defaults.items()], values


def from_json(signature: Signature, label: str) -> Converter:
    """Convert all arguments at once, through a type that the first call creates."""
    names = [parameter.name for parameter in signature.parameters]
    shape: type[Any] | None = None

    def convert(arguments: dict[str, Any]) -> dict[str, Any]:
        nonlocal shape
        if shape is None:
            shape = _struct(signature)
        try:
            values = msgspec.convert(arguments, shape, dec_hook=decode_model)
        except msgspec.ValidationError as error:
            try:
                values = msgspec.convert(whole_numbers(arguments), shape, dec_hook=decode_model)
            except (msgspec.ValidationError, RecursionError):
                raise ToolError(f"{label}: {_reason(error)}") from None
        given = ((name, getattr(values, name)) for name in names)
        return {name: value for name, value in given if value is not _ABSENT}

    return convert


def _struct(signature: Signature) -> type[Any]:
    fields: list[Any] = []
    for parameter in signature.parameters:
        kind = _typed(parameter.type)
        fields.append((parameter.name, kind, *(() if parameter.required else (_ABSENT,))))
    return msgspec.defstruct("Arguments", fields, kw_only=True)


def _typed(kind: Any) -> Any:
    return Any if kind is EMPTY else kind


def whole_numbers(value: Any) -> Any:
    """Convert floats like `1.0` to integers: JSON Schema accepts them, msgspec does not."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case list():
            return [whole_numbers(item) for item in value]
        case dict():
            return {name: whole_numbers(inner) for name, inner in value.items()}
    return value


def from_text(signature: Signature, label: str) -> Converter:
    """Convert arguments that are sent as text: of prompts and URI templates."""
    kinds = {parameter.name: _typed(parameter.type) for parameter in signature.parameters}
    needed = [parameter.name for parameter in signature.parameters if parameter.required]

    def convert(arguments: dict[str, Any]) -> dict[str, Any]:
        for name in needed:
            if name not in arguments:
                raise InvalidParams(f"{label}: {name}: missing (required)")
        values = {}
        for name in (name for name in kinds if name in arguments):
            try:
                values[name] = _read_text(arguments[name], kinds[name])
            except msgspec.ValidationError as error:
                raise InvalidParams(f"{label}: {name}: {_reason(error)}") from None
        return values

    return convert


def _read_text(value: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(value, kind, strict=False, dec_hook=decode_model)
    except msgspec.ValidationError:
        # A list or an object is sent as JSON.
        if not isinstance(value, str) or value[:1] not in "[{":
            raise
        try:
            decoded = msgspec.json.decode(value)
        except (msgspec.MsgspecError, RecursionError):
            decoded = value
        return msgspec.convert(decoded, kind, strict=False, dec_hook=decode_model)


def _reason(error: Exception) -> str:
    """Return `days: expected int, got str` for msgspec's message."""
    what, _, where = str(error).partition(" - at `$")
    what = " ".join(what.replace("`", "").split())
    what = what[:1].lower() + what[1:]
    where = where.rstrip("`").removeprefix(".")
    return f"{where}: {what}" if where else what
