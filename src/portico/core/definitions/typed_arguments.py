"""Arguments of Portico's own tools as typed values, with the same words for mistakes as schemas."""

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from portico.core.definitions.wording import render, suggestion

T = TypeVar("T")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`")
_MISSING = re.compile(r"Object missing required field `(.*?)`")
_TYPE = re.compile(r"Expected `(.*?)`, got `(.*?)`")
_PLACE = re.compile(r" - at `\$\.?(.*?)`$")
_NAMES = {
    "int": "integer",
    "float": "number",
    "str": "string",
    "bool": "boolean",
    "list": "array",
    "array": "array",
    "None": "null",
}


def typed_arguments(given: Mapping[str, Any], type: type[T]) -> T:
    """Convert arguments; raises ValueError with what is wrong, for a model to correct.

    Some models send null for omitted arguments, and 5.0 or "5" for 5.
    """
    kept = {key: value for key, value in given.items() if value is not None}
    try:
        return msgspec.convert(kept, type, strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(argument_error(str(error), type)) from None


def argument_error(text: str, type: type[Any]) -> str:
    """Return msgspec's text about arguments of a type in the words of our schemas."""
    place = _PLACE.search(text)
    path = "" if place is None else place[1].replace("[...]", "[]")
    at = f"{path}: " if path else ""
    text = _PLACE.sub("", text)
    if (found := _UNKNOWN.fullmatch(text)) is not None:
        fields = getattr(type, "__struct_fields__", ())
        near = suggestion(found[1], fields) or f"; known: {', '.join(fields) or 'none'}"
        return f"{at}unknown field {render(found[1])}{near}"
    if (found := _MISSING.fullmatch(text)) is not None:
        return f"{at}{found[1]}: missing (required)"
    if (found := _TYPE.fullmatch(text)) is not None:
        return f"{at}expected {_named(found[1])}, got {_named(found[2])}"
    return f"{at}{text}"


def _named(types: str) -> str:
    """Return types of Python under their names in JSON."""
    names = [one.strip() for one in types.split("|")]
    return " or ".join(_NAMES.get(one, one) for one in names if one != "null")
