"""Load definitions from files, bytes and objects; every field is kept and checked."""

from collections.abc import Mapping, Sequence
from functools import partial
from os import PathLike, fspath
from typing import Any

import msgspec
from msgspec import Struct

from portico.core.definitions.definition_error import DefinitionError
from portico.core.definitions.entries import PROMPT, RESOURCE, TEMPLATE, TOOL, DefinitionKind
from portico.core.definitions.wording import render, render_all, suggestion, type_name

Source = str | PathLike[str] | bytes | Mapping[str, Any] | Sequence[Any]
"""A path, JSON, or decoded JSON: a list of definitions, or an object of such lists."""

_KINDS = {"tools": TOOL, "resources": RESOURCE, "resourceTemplates": TEMPLATE, "prompts": PROMPT}


class Definitions(Struct, frozen=True):
    """All definitions of one file."""

    tools: list[dict[str, Any]]
    resources: list[dict[str, Any]]
    templates: list[dict[str, Any]]
    prompts: list[dict[str, Any]]


def load_file(path: str | PathLike[str]) -> Definitions:
    """Load the definitions of a file: an object of lists, or a list of tools."""
    name, document = _read(path)
    if isinstance(document, list):
        document = {"tools": document}
    found = _lists(document, name)
    if not found:
        raise DefinitionError(f"has none of {render_all(list(_KINDS))}", source=name)
    return Definitions(*(_check_entries(found.get(key, []), key, name) for key in _KINDS))


def _load(source: Source, key: str) -> list[dict[str, Any]]:
    """Load the definitions of one kind from a source."""
    name, document = _read(source)
    if isinstance(document, Mapping):
        found = _lists(document, name)
        if key not in found:
            raise DefinitionError(f"has no {render(key)}", source=name)
        document = found[key]
    return _check_entries(document, key, name)


load_tools = partial(_load, key="tools")
load_resources = partial(_load, key="resources")
load_templates = partial(_load, key="resourceTemplates")
load_prompts = partial(_load, key="prompts")


def _read(source: Source) -> tuple[str, Any]:
    """Return the name of a source for messages, and its decoded content."""
    if isinstance(source, str | PathLike):
        name = fspath(source)
        try:
            with open(name, "rb") as file:
                return name, _decode(file.read(), name)
        except OSError as error:
            why = f"cannot be read: {error.strerror or error}"
            raise DefinitionError(why, source=name) from None
    if isinstance(source, bytes | bytearray | memoryview):
        return "", _decode(bytes(source), "")
    return "", source


def _decode(data: bytes, name: str) -> Any:
    data = data.removeprefix(b"\xef\xbb\xbf")  # some editors write a byte order mark
    try:
        data.decode()
        return msgspec.json.decode(data)
    except UnicodeDecodeError as error:
        raise DefinitionError(
            f"is not UTF-8 text{_where(data, error.start)}", source=name
        ) from None
    except RecursionError:
        raise DefinitionError("is nested too deeply", source=name) from None
    except msgspec.MsgspecError as error:
        what, _, where = str(error).rstrip(")").partition(" (byte ")
        at = _where(data, int(where) if where.isdecimal() else len(data))
        what = what.removeprefix("JSON is malformed: ")
        what = "unexpected end of file" if what == "Input data was truncated" else what
        raise DefinitionError(f"is not JSON: {what}{at}", source=name) from None


def _where(data: bytes, offset: int) -> str:
    before = data[:offset]
    line = before.count(b"\n") + 1
    column = len(before[before.rfind(b"\n") + 1 :].decode(errors="replace")) + 1
    return f" (line {line}, column {column})"


def _lists(document: Any, name: str) -> dict[str, Any]:
    """Return the lists of definitions by key; reject a key that is almost one of them."""
    if not isinstance(document, Mapping):
        why = f"must be an object or a list, not {type_name(document)}"
        raise DefinitionError(why, source=name)
    for key in document:
        hint = "" if key in _KINDS else suggestion(str(key), _KINDS)
        if hint:
            raise DefinitionError(f"unknown key {render(key)}{hint}", source=name)
    return {key: document[key] for key in _KINDS if key in document}


def _check_entries(entries: Any, key: str, name: str) -> list[dict[str, Any]]:
    kind = _KINDS[key]
    if isinstance(entries, str) or not isinstance(entries, Sequence):
        why = f"must be a list of {kind.noun}s, not {type_name(entries)}"
        raise DefinitionError(why, source=name, field=key)
    checked: dict[str, dict[str, Any]] = {}
    for number, entry in enumerate(entries, 1):
        try:
            definition = _to_dict(entry)
            if not name:
                check_json(definition)  # a file has only JSON values
            kind.check(definition)
            if definition[kind.key] in checked:
                first = list(checked).index(definition[kind.key]) + 1
                why = f"{render(definition[kind.key])} is already {kind.noun} {first}"
                raise DefinitionError(why, field=kind.key)
        except DefinitionError as error:
            raise error.inside(source=name, entry=_entry(kind, number, entry)) from None
        checked[definition[kind.key]] = definition
    return list(checked.values())


def _to_dict(entry: Any) -> dict[str, Any]:
    """Convert an entry, a mapping or an object with fields, to a dict."""
    if isinstance(entry, Mapping):
        return dict(entry)
    if hasattr(entry, "model_dump"):  # a pydantic model, such as the SDK's types
        dumped: dict[str, Any] = entry.model_dump(mode="json", by_alias=True, exclude_none=True)
        return dumped
    try:
        plain = msgspec.to_builtins(entry)
    except (TypeError, msgspec.MsgspecError):
        plain = None
    if not isinstance(plain, dict):
        raise DefinitionError(f"must be an object, not {type_name(entry)}")
    return plain


def check_json(definition: Mapping[str, Any]) -> None:
    """Raise DefinitionError with the field if a value cannot be written as JSON."""
    for field, value in definition.items():
        try:
            msgspec.json.encode(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise DefinitionError(f"cannot be written as JSON: {error}", field=str(field)) from None


def _entry(kind: DefinitionKind, number: int, entry: Any) -> str:
    """Return `tool 2 ("get_weather")`, counted from 1."""
    named = entry.get(kind.key) if isinstance(entry, Mapping) else None
    shown_name = f" ({render(named)})" if named and isinstance(named, str) else ""
    return f"{kind.noun} {number}{shown_name}"
