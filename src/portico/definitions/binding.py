"""From JSON arguments, or text, to the values a function takes."""

from collections.abc import Callable
from typing import Any

import msgspec

from portico.definitions.shapes import revive
from portico.definitions.signatures import NOTHING, Signature
from portico.model.errors import InvalidParams, ToolError

_ABSENT = object()
"""Stands for an argument that was not given; the function has a default of its own for it."""

Converter = Callable[[dict[str, Any]], dict[str, Any]]
"""From arguments as they came to arguments by parameter; raises what the caller is to be told."""


class Derived:
    """A definition read off a function, and the way to call the function with JSON arguments."""

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
        """True if the output schema has the value under the key `result`."""
        self._signature = signature
        self._convert = convert

    @property
    def context_parameter(self) -> str | None:
        """The parameter that takes the context, if there is one."""
        return self._signature.context

    def bind(
        self, arguments: dict[str, Any], context: Any = None
    ) -> tuple[list[Any], dict[str, Any]]:
        """What to call the function with; a value of the wrong kind is the caller's error."""
        values = self._convert(arguments)
        signature = self._signature
        for parameter in signature.parameters:
            if parameter.fill is not None and parameter.name not in values:
                values[parameter.name] = parameter.fill()
        if signature.context is not None:
            values[signature.context] = context
        defaults = signature.positional
        return [values.pop(name, default) for name, default in defaults.items()], values


def from_json(signature: Signature, label: str) -> Converter:
    """Convert all arguments in one go, through a type that is made at the first call."""
    names = [parameter.name for parameter in signature.parameters]
    shape: type[Any] | None = None

    def convert(arguments: dict[str, Any]) -> dict[str, Any]:
        nonlocal shape
        if shape is None:
            shape = _struct(signature)
        try:
            values = msgspec.convert(arguments, shape, dec_hook=revive)
        except msgspec.ValidationError as error:
            try:
                values = msgspec.convert(whole_numbers(arguments), shape, dec_hook=revive)
            except (msgspec.ValidationError, RecursionError):
                raise ToolError(f"{label}: {_said(error)}") from None
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
    return Any if kind is NOTHING else kind


def whole_numbers(value: Any) -> Any:
    """To JSON Schema `1.0` is an integer, to msgspec it is none: make it one."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case list():
            return [whole_numbers(item) for item in value]
        case dict():
            return {name: whole_numbers(inner) for name, inner in value.items()}
    return value


def from_text(signature: Signature, label: str) -> Converter:
    """Convert arguments that travel as text: prompts and the variables of URIs."""
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
                raise InvalidParams(f"{label}: {name}: {_said(error)}") from None
        return values

    return convert


def _read_text(value: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(value, kind, strict=False, dec_hook=revive)
    except msgspec.ValidationError:
        # A list or an object can only have come as JSON.
        if not isinstance(value, str) or value[:1] not in "[{":
            raise
        try:
            decoded = msgspec.json.decode(value)
        except (msgspec.MsgspecError, RecursionError):
            decoded = value
        return msgspec.convert(decoded, kind, strict=False, dec_hook=revive)


def _said(error: Exception) -> str:
    """`days: expected int, got str` from msgspec's words."""
    what, _, where = str(error).partition(" - at `$")
    what = " ".join(what.replace("`", "").split())
    what = what[:1].lower() + what[1:]
    where = where.rstrip("`").removeprefix(".")
    return f"{where}: {what}" if where else what
