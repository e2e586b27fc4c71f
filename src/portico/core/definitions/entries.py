"""The fields of tools, resources, templates and prompts, as tables of checks."""

from collections.abc import Callable, Mapping
from string import ascii_letters, digits
from typing import Any

import msgspec
from msgspec import Struct

from portico.core.definitions.definition_error import DefinitionError
from portico.core.definitions.header_params import header_params
from portico.core.definitions.structure import structural_check
from portico.core.definitions.templates import UriTemplate
from portico.core.definitions.wording import render, suggestion, type_name

_Check = Callable[[Any, str], None]
"""Check the value of a field; raise DefinitionError with that field or one inside it."""

_SCHEME = frozenset(ascii_letters + digits + "+-.")


class DefinitionKind(Struct, frozen=True):
    """One kind of definition."""

    noun: str
    key: str
    """The field that identifies an entry."""
    required: tuple[str, ...]
    fields: Mapping[str, _Check]

    def check(self, entry: Mapping[str, Any]) -> None:
        """Raise DefinitionError with the field if an entry is not valid."""
        for field in self.required:
            if field not in entry:
                near = [key for key in entry if suggestion(field, [str(key)])]
                hint = f"; found {render(near[0])} instead" if near else ""
                raise DefinitionError(f"is missing{hint}", field=field)
        for field, check in self.fields.items():
            if field in entry:
                check(entry[field], field)


def _must(be: str, fits: Callable[[Any], bool]) -> _Check:
    def check(value: Any, field: str) -> None:
        if not fits(value):
            raise DefinitionError(f"must be {be}, not {_got(value)}", field=field)

    return check


_text = _must("a string", lambda value: isinstance(value, str))
_flag = _must("true or false", lambda value: isinstance(value, bool))
_object = _must("an object", lambda value: isinstance(value, dict))
_list = _must("a list", lambda value: isinstance(value, list | tuple))
_size = _must("a number of bytes", lambda value: type_name(value) == "integer" and value >= 0)
_priority = _must(
    "a number from 0 to 1",
    lambda value: type_name(value) in ("integer", "number") and 0 <= value <= 1,
)


def _name(value: Any, field: str) -> None:
    _text(value, field)
    if not value:
        raise DefinitionError("must not be empty", field=field)


def _one_of(*options: str) -> _Check:
    return _must(" or ".join(map(render, options)), lambda value: value in options)


def _each(inner: _Check) -> _Check:
    def check(value: Any, field: str) -> None:
        _list(value, field)
        for index, item in enumerate(value):
            inner(item, f"{field}[{index}]")

    return check


def _fields(needed: tuple[str, ...] = (), /, **checks: _Check) -> _Check:
    """Return a check of an object's known fields."""
    kind = DefinitionKind("", "", needed, checks)

    def check(value: Any, field: str) -> None:
        _object(value, field)
        try:
            kind.check(value)
        except DefinitionError as error:
            raise error.inside(field=field) from None

    return check


def _uri(value: Any, field: str) -> None:
    _name(value, field)
    scheme, colon, _ = value.partition(":")
    if not colon or not scheme or scheme[0] not in ascii_letters or not _SCHEME.issuperset(scheme):
        why = f"{render(value)} is not a URI: it must begin with a scheme, as in file:///notes.txt"
        raise DefinitionError(why, field=field)


def _uri_template(value: Any, field: str) -> None:
    _name(value, field)
    try:
        UriTemplate(value)
    except DefinitionError as error:
        raise error.inside(field=field) from None


def _schema(value: Any, field: str) -> None:
    _object(value, field)
    try:
        structural_check(value)
        if b'"pattern' in msgspec.json.encode(value):
            # Only the compiler finds an invalid pattern. It is slow to import, and rarely needed.
            from portico.core.definitions.schema import Schema

            Schema(value).check()
    except DefinitionError as error:
        raise error.inside(field=field) from None


def _input_schema(value: Any, field: str) -> None:
    _schema(value, field)
    if value.get("type") != "object":
        why = f'must be "object" (arguments are named), not {_got(value.get("type"))}'
        raise DefinitionError(why, field=f"{field}.type")
    if b'"x-mcp-header"' not in msgspec.json.encode(value):
        return
    try:
        header_params(value)
    except DefinitionError as error:
        raise error.inside(field=field) from None


def _arguments(value: Any, field: str) -> None:
    _each(_ARGUMENT)(value, field)
    names = [argument["name"] for argument in value]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise DefinitionError(f"{render(name)} is listed twice", field=f"{field}[{index}].name")


def _got(value: Any) -> str:
    return render(value) if isinstance(value, str | int | float) else type_name(value)


_ARGUMENT = _fields(("name",), name=_name, title=_text, description=_text, required=_flag)
_ICON = _fields(
    ("src",), src=_name, mimeType=_text, sizes=_each(_text), theme=_one_of("light", "dark")
)
_ANNOTATIONS = _fields(
    audience=_each(_one_of("user", "assistant")), priority=_priority, lastModified=_text
)
_TOOL_ANNOTATIONS = _fields(
    title=_text,
    readOnlyHint=_flag,
    destructiveHint=_flag,
    idempotentHint=_flag,
    openWorldHint=_flag,
)
_COMMON: dict[str, _Check] = {
    "name": _name,
    "title": _text,
    "description": _text,
    "icons": _each(_ICON),
    "_meta": _object,
}
_RESOURCE: dict[str, _Check] = {**_COMMON, "mimeType": _text, "annotations": _ANNOTATIONS}

TOOL = DefinitionKind(
    "tool",
    "name",
    ("name", "inputSchema"),
    {
        **_COMMON,
        "inputSchema": _input_schema,
        "outputSchema": _schema,
        "annotations": _TOOL_ANNOTATIONS,
        "execution": _object,
    },
)
RESOURCE = DefinitionKind(
    "resource", "uri", ("name", "uri"), {**_RESOURCE, "uri": _uri, "size": _size}
)
TEMPLATE = DefinitionKind(
    "resource template",
    "uriTemplate",
    ("name", "uriTemplate"),
    {**_RESOURCE, "uriTemplate": _uri_template},
)
PROMPT = DefinitionKind("prompt", "name", ("name",), {**_COMMON, "arguments": _arguments})
