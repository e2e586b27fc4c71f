"""Requests to the gateway made into requests to the server that answers them."""

from collections.abc import Callable
from copy import copy
from typing import Any

import msgspec
from msgspec import Raw, Struct, field
from msgspec.structs import replace

from portico.catalog.merge import ItemRoute
from portico.catalog.parameter_summary import parameters
from portico.catalog.sanitize import sanitize_json
from portico.gateway.metatool_definitions import EXECUTE, NAMES
from portico.model.context import Context
from portico.model.errors import PorticoError
from portico.model.message import Request, Response
from portico.model.types import Answer, Handler
from portico.protocol.codec import NO_RAW, encode
from portico.protocol.eras import members, with_capabilities
from portico.protocol.exact import exact, with_field
from portico.protocol.result_fields import error_result
from portico.protocol.tasks import without_tasks_raw

_MAX_SCHEMA = 1_500


class InvalidCall(PorticoError):
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
    meta: Raw = field(default=NO_RAW, name="_meta")


class _Execute(Struct, forbid_unknown_fields=True):
    name: str
    arguments: _Wanted
    meta: Raw = field(default=NO_RAW, name="_meta")


class Reference(Struct, frozen=True):
    """What a completion is about."""

    type: str = ""
    name: str = ""
    uri: str = ""


class _Complete(Struct):
    ref: Reference = Reference()


_UNREADABLE = (msgspec.DecodeError, RecursionError, UnicodeEncodeError)
_PARAMS = b'{"name":%b,"arguments":%b%b}'
_META = b',"_meta":%b'
_anything = msgspec.json.Decoder().decode
_plain = msgspec.json.Decoder(_Plain).decode
_execute = msgspec.json.Decoder(_Execute).decode
_wanted = msgspec.json.Decoder(_Wanted).decode


def with_name(request: Request, tool: str) -> Request:
    """The same call or prompt, by its own name."""
    inner, _ = _named(request, tool)
    return inner


def _named(request: Request, name: str) -> tuple[Request, bytes]:
    """The same call by another name, and its arguments."""
    inner = copy(request)
    inner.name = name
    try:
        found = _plain(request.params)
    except msgspec.DecodeError:  # there is more to it, or less
        fields = exact(request.params)
        fields.pop("task", None)
        inner.params = encode({**fields, "name": Raw(encode(name))})
        return inner, bytes(fields.get("arguments", b"{}"))
    arguments = bytes(found.arguments)
    meta = b"" if found.meta is NO_RAW else _META % found.meta
    inner.params = _PARAMS % (encode(name), arguments, meta)
    return inner, arguments


def without_task_support(request: Request) -> Request:
    """The same from a client that follows no tasks: at this door nobody could ask about them."""
    declared = request.meta.client_capabilities
    if not declared:
        return request
    kept = without_tasks_raw(declared)
    return request if kept is declared else with_capabilities(request, kept)


def with_uri(request: Request, uri: str) -> Request:
    """The same about a resource, by its own URI."""
    fields = exact(request.params)
    if uri != request.uri:
        fields["uri"] = Raw(encode(uri))
    return replace(request, params=encode(fields), uri=uri)


def reference_of(request: Request) -> Reference:
    """What a completion is about; raises InvalidParams."""
    return request.decode_as(_Complete).ref


def with_reference(request: Request, key: str, value: str) -> Request:
    """The same completion, by its reference's own name or URI."""
    fields = exact(request.params)
    reference = members(fields.get("ref", b""))
    reference[key] = Raw(encode(value))
    fields["ref"] = Raw(encode(reference))
    return replace(request, params=encode(fields))


def with_target(request: Request, key: str, value: str) -> Request:
    """The same about something by another name or URI, and all else as it was written."""
    made = copy(request)
    new = encode(value)
    if request.method == "completion/complete":
        reference = bytes(members(request.params).get("ref", b""))
        made.params = with_field(request.params, "ref", with_field(reference, key, new))
        return made
    made.params = with_field(request.params, key, new)
    if key == "name":
        made.name = value
    else:
        made.uri = value
    return made


def unwrapping(
    next: Handler,
    on_invalid: Callable[[Request, Context, "InvalidCall"], Response],
    answer_hidden: Callable[[Request, Context], Answer | None] | None = None,
) -> Handler:
    """The next handler, for which a call of `execute_tool` is one of the tool that it names; a
    mistake is answered by `mistaken`, and `unseen` may answer for a tool that is not to be seen."""

    def handle(request: Request, context: Context) -> Answer:
        if request.name not in NAMES or request.method != "tools/call":
            return next(request, context)
        if request.name != EXECUTE:
            request.asked = request.name
            return next(request, context)
        try:
            unwrap(request)
        except InvalidCall as invalid:
            return on_invalid(request, context, invalid)
        answer = None if answer_hidden is None else answer_hidden(request, context)
        return next(request, context) if answer is None else answer

    return handle


def unwrap(request: Request) -> None:
    """Make a call of `execute_tool` one of the tool that it names; raises Mistake."""
    more = None
    meta = b""
    try:
        call = _execute(request.params)
        wanted = call.arguments
        meta = b"" if call.meta is NO_RAW else _META % call.meta
    except msgspec.DecodeError:
        # Whatever else came with the call (answers of an earlier round) goes along.
        more = exact(request.params)
        more.pop("task", None)
        wanted = _read(bytes(more.get("arguments", b"")))
    if not wanted.name:
        raise InvalidCall(f"execute_tool: `name` is missing; {_SHAPE}")
    if wanted.name in NAMES:
        raise InvalidCall(f"{wanted.name} is not a tool of a server: call it directly")
    timeout = wanted.timeout_s or 0.0
    if timeout < 0:
        raise InvalidCall("execute_tool: timeout_s must be more than 0")
    arguments = bytes(wanted.arguments)
    if arguments[:1] != b"{":
        arguments = _argument_object(wanted.name, arguments)
    if more is None:
        request.params = _PARAMS % (encode(wanted.name), arguments, meta)
    else:
        named = {"name": Raw(encode(wanted.name)), "arguments": Raw(arguments)}
        request.params = encode({**more, **named})
    request.asked, request.name, request.timeout_s = request.name, wanted.name, timeout


def validated(request: Request, place: ItemRoute) -> Request:
    """The call as its server gets it, once its arguments were found right; raises Mistake."""
    namespaced, tool = place
    inner, raw = _named(request, tool)
    try:
        arguments = _anything(raw)
    except _UNREADABLE as error:
        raise _unreadable(request.name, error) from None
    if not isinstance(arguments, dict):
        raise InvalidCall(f"{request.name}: its arguments must be a JSON object{_expected(place)}")
    schema = namespaced.schemas[tool] if tool in namespaced.schemas else namespaced.schema(tool)
    if schema is not None:
        if problems := schema.problems(arguments, len(raw)):
            words = sanitize_json(schema.describe(problems))
            raise InvalidCall(f"{request.name}: {words}{_expected(place)}")
        inner.arguments = arguments
    return inner


def _unreadable(name: str, error: Exception) -> InvalidCall:
    return InvalidCall(f"{name[:200]}: its arguments are not a JSON object: {error}")


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
        raise InvalidCall(f"execute_tool: {why}; {_SHAPE}") from None


_SHAPE = 'write {"name": "server__tool", "arguments": {...}}'


def _argument_object(name: str, raw: bytes) -> bytes:
    """The arguments as an object; some models write that object as a string."""
    if not raw or raw == b"null":
        return b"{}"
    if raw[:1] == b'"':
        words = msgspec.json.decode(raw, type=str)
        raw = words.encode() if words.strip() else b"{}"
        try:
            _anything(raw)  # nobody has read it yet
        except _UNREADABLE as error:
            raise _unreadable(name, error) from None
    return raw


def _expected(place: ItemRoute) -> str:
    """The right shape, after what was wrong with it."""
    namespaced, tool = place
    schema = namespaced.definition(tool).get("inputSchema")
    compact = parameters(schema)
    whole = sanitize_json(encode(schema).decode())
    shown = f"; it takes {compact or 'no arguments'}"
    return f"{shown}\nschema: {whole}" if len(whole) <= _MAX_SCHEMA else shown
