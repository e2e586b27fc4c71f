"""Requests to the gateway made into requests to the server that answers them."""

from typing import Any

import msgspec
from msgspec import Raw, Struct

from portico.catalog.union import Place, Union
from portico.gateway.shown import parameters
from portico.model.errors import PorticoError
from portico.model.message import Request
from portico.protocol.codec import NO_RAW, encode
from portico.protocol.eras import members

_MAX_SHAPE = 1_500


class Mistake(PorticoError):
    """What is wrong with a call, in words that tell a model how to make it right."""


class _Wanted(Struct):
    name: str = ""
    arguments: Raw = NO_RAW
    timeout_s: float | None = None


class _Execute(Struct):
    arguments: Raw = NO_RAW


_outer = msgspec.json.Decoder(_Execute).decode
_wanted = msgspec.json.Decoder(_Wanted).decode
_KEYS = ("name", "arguments", "timeout_s")


def called(request: Request, tool: str) -> Request:
    """The same call or prompt, by its own name."""
    fields = members(request.params)
    fields["name"] = Raw(encode(tool))
    return msgspec.structs.replace(request, params=encode(fields), name=tool)


def at(request: Request, uri: str) -> Request:
    """The same about a resource, by its own URI."""
    if uri == request.uri:
        return request
    fields = members(request.params)
    fields["uri"] = Raw(encode(uri))
    return msgspec.structs.replace(request, params=encode(fields), uri=uri)


def referring(request: Request, key: str, value: str) -> Request:
    """The same completion, by its reference's own name or URI."""
    fields = members(request.params)
    reference = members(fields.get("ref", b""))
    reference[key] = Raw(encode(value))
    fields["ref"] = Raw(encode(reference))
    return msgspec.structs.replace(request, params=encode(fields))


def executed(request: Request, union: Union) -> tuple[Place, Request]:
    """What `execute_tool` asks for; raises Mistake."""
    try:
        given = bytes(_outer(request.params or b"{}").arguments)
        wanted = _wanted(given or b"{}")
    except msgspec.DecodeError as error:
        raise Mistake(f"execute_tool: {error}; {_SHAPE}") from None
    if not wanted.name:
        raise Mistake(f"execute_tool: `name` is missing; {_SHAPE}")
    place = union.tool(wanted.name)
    if place is None:
        raise UnknownTool(wanted.name)
    strange = [key for key in members(given) if key not in _KEYS]
    if strange:
        names = ", ".join(f"`{key[:40]}`" for key in strange[:5])
        raise Mistake(f"execute_tool: {names} must stand inside `arguments`; {_SHAPE}")
    tool = place[1]
    arguments = _unwrapped(bytes(wanted.arguments))
    _check(place, wanted.name, arguments)
    timeout = wanted.timeout_s or 0.0
    if timeout < 0:
        raise Mistake("execute_tool: timeout_s must be more than 0")
    fields = members(request.params)
    # Whatever else came with the call (progress token, answers of an earlier round) goes along.
    fields["name"], fields["arguments"] = Raw(encode(tool)), Raw(arguments)
    params = encode(fields)
    return place, msgspec.structs.replace(request, params=params, name=tool, timeout_s=timeout)


class UnknownTool(Mistake):
    """There is no tool of this name here."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no tool {name[:200]!r}")
        self.name = name


_SHAPE = 'write {"name": "server__tool", "arguments": {...}}'


def _unwrapped(raw: bytes) -> bytes:
    """The arguments as an object; some models write that object as a string."""
    if not raw or raw == b"null":
        return b"{}"
    if raw[:1] == b'"':
        words = msgspec.json.decode(raw, type=str)
        return words.encode() if words.strip() else b"{}"
    return raw


def _check(place: Place, name: str, raw: bytes) -> None:
    share, tool = place
    try:
        arguments: Any = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        raise Mistake(f"{name}: its arguments are no JSON object: {error}") from None
    if not isinstance(arguments, dict):
        raise Mistake(f"{name}: its arguments must be a JSON object{_right(place)}")
    schema = share.schema(tool)
    problems = schema.problems(arguments) if schema is not None else []
    if problems and schema is not None:
        raise Mistake(f"{name}: {schema.describe(problems)}{_right(place)}")


def _right(place: Place) -> str:
    """The right shape, after what was wrong with it."""
    share, tool = place
    schema = share.definition(tool).get("inputSchema")
    compact = parameters(schema)
    whole = encode(schema).decode()
    shown = f"; it takes {compact or 'no arguments'}"
    return f"{shown}\nschema: {whole}" if len(whole) <= _MAX_SHAPE else shown
