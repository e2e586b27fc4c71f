"""Requests to the gateway made into requests to the server that answers them."""

from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from portico.catalog.compact import parameters
from portico.catalog.hidden import revealed_json
from portico.catalog.merge import Place
from portico.model.errors import PorticoError
from portico.model.message import Request
from portico.protocol.codec import NO_RAW, encode
from portico.protocol.eras import declaring, members
from portico.protocol.exact import exact
from portico.protocol.results import error_result
from portico.protocol.tasks import without_tasks_raw

_MAX_SHAPE = 1_500


class Mistake(PorticoError):
    """What is wrong with a call, in words that tell a model how to make it right."""

    def result(self) -> dict[str, Any]:
        """The same as a result that a model can act on."""
        return error_result(str(self))


class _Wanted(Struct, forbid_unknown_fields=True):
    name: str = ""
    arguments: Raw = NO_RAW
    timeout_s: float | None = None


class _Plain(Struct, forbid_unknown_fields=True):
    name: str
    arguments: Raw


class _Execute(Struct, forbid_unknown_fields=True):
    name: str
    arguments: _Wanted


_anything = msgspec.json.Decoder().decode
_plain = msgspec.json.Decoder(_Plain).decode
_execute = msgspec.json.Decoder(_Execute).decode
_wanted = msgspec.json.Decoder(_Wanted).decode


def called(request: Request, tool: str) -> Request:
    """The same call or prompt, by its own name."""
    name = encode(tool)
    try:
        arguments = _plain(request.params).arguments
        params = b'{"name":%b,"arguments":%b}' % (name, bytes(arguments))
    except msgspec.DecodeError:  # there is more to it, or less
        fields = exact(request.params)
        fields.pop("task", None)
        params = encode({**fields, "name": Raw(name)})
    return replace(request, params=params, name=tool)


def withheld(request: Request) -> Request:
    """The same from a client that follows no tasks: at this door nobody could ask about them."""
    declared = request.meta.client_capabilities
    kept = without_tasks_raw(declared)
    return request if kept is declared else declaring(request, kept)


def at(request: Request, uri: str) -> Request:
    """The same about a resource, by its own URI."""
    fields = exact(request.params)
    if uri != request.uri:
        fields["uri"] = Raw(encode(uri))
    return replace(request, params=encode(fields), uri=uri)


def referring(request: Request, key: str, value: str) -> Request:
    """The same completion, by its reference's own name or URI."""
    fields = exact(request.params)
    reference = members(fields.get("ref", b""))
    reference[key] = Raw(encode(value))
    fields["ref"] = Raw(encode(reference))
    return replace(request, params=encode(fields))


def execute(request: Request) -> None:
    """Make a call of `execute_tool` one of the tool that it names; raises Mistake."""
    more = None
    try:
        wanted = _execute(request.params).arguments
    except msgspec.DecodeError:
        # Whatever else came with the call (progress token, answers of an earlier round) goes along.
        more = exact(request.params)
        more.pop("task", None)
        wanted = _read(bytes(more.get("arguments", b"")))
    if not wanted.name:
        raise Mistake(f"execute_tool: `name` is missing; {_SHAPE}")
    timeout = wanted.timeout_s or 0.0
    if timeout < 0:
        raise Mistake("execute_tool: timeout_s must be more than 0")
    arguments = bytes(wanted.arguments)
    if arguments[:1] != b"{":
        try:
            arguments = _unwrapped(arguments)
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
            words = f"{wanted.name[:200]}: its arguments are no JSON object: {error}"
            raise Mistake(words) from None
    name = encode(wanted.name)
    if more is None:
        request.params = b'{"name":%b,"arguments":%b}' % (name, arguments)
    else:
        request.params = encode({**more, "name": Raw(name), "arguments": Raw(arguments)})
    request.asked, request.name, request.timeout_s = request.name, wanted.name, timeout


def checked(request: Request, place: Place) -> Request:
    """The call as its server gets it, once its arguments were found right; raises Mistake."""
    share, tool = place
    name = encode(tool)
    try:
        raw = bytes(_plain(request.params).arguments)
        params = b'{"name":%b,"arguments":%b}' % (name, raw)
    except msgspec.DecodeError:
        fields = exact(request.params)
        raw = bytes(fields.get("arguments", b"{}"))
        params = encode({**fields, "name": Raw(name)})
    arguments = _arguments(request.name, raw, place)
    schema = share.schema(tool)
    if schema is None:
        return replace(request, params=params, name=tool)
    if problems := schema.problems(arguments, len(raw)):
        words = revealed_json(schema.describe(problems))
        raise Mistake(f"{request.name}: {words}{_right(place)}")
    return replace(request, params=params, name=tool, arguments=arguments)


def _read(given: bytes) -> _Wanted:
    """The arguments of `execute_tool`; raises Mistake."""
    try:
        return _wanted(given or b"{}")
    except msgspec.DecodeError as error:
        known = _Wanted.__struct_fields__
        strange = [f"`{key[:40]}`" for key in members(given) if key not in known]
        if strange:
            names = ", ".join(strange[:5])
            why = f"{names} must stand inside `arguments`"
        else:
            why = str(error)
        raise Mistake(f"execute_tool: {why}; {_SHAPE}") from None


_SHAPE = 'write {"name": "server__tool", "arguments": {...}}'


def _unwrapped(raw: bytes) -> bytes:
    """The arguments as an object; some models write that object as a string."""
    if not raw or raw == b"null":
        return b"{}"
    if raw[:1] == b'"':
        words = msgspec.json.decode(raw, type=str)
        raw = words.encode() if words.strip() else b"{}"
        _anything(raw)  # which nobody has read yet
    return raw


def _arguments(name: str, raw: bytes, place: Place) -> dict[str, Any]:
    try:
        arguments = _anything(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        raise Mistake(f"{name}: its arguments are no JSON object: {error}") from None
    if not isinstance(arguments, dict):
        raise Mistake(f"{name}: its arguments must be a JSON object{_right(place)}")
    return arguments


def _right(place: Place) -> str:
    """The right shape, after what was wrong with it."""
    share, tool = place
    schema = share.definition(tool).get("inputSchema")
    compact = parameters(schema)
    whole = revealed_json(encode(schema).decode())
    shown = f"; it takes {compact or 'no arguments'}"
    return f"{shown}\nschema: {whole}" if len(whole) <= _MAX_SHAPE else shown
