"""The rewriting of requests to a gateway into those to a member; unwraps `execute_tool`, too."""

from collections.abc import Callable
from copy import copy
from typing import Any

import msgspec
from msgspec import Raw, Struct, field
from msgspec.structs import replace

from portico.core.catalog.merge import ItemRoute
from portico.core.catalog.parameter_summary import parameters
from portico.core.catalog.sanitize import sanitize_json
from portico.core.definitions.typed_arguments import argument_error
from portico.core.model.context import Context
from portico.core.model.errors import PorticoError
from portico.core.model.message import Request, Response
from portico.core.model.types import Answer, Handler
from portico.core.protocol.codec import NO_RAW, encode
from portico.core.protocol.eras import members, with_capabilities
from portico.core.protocol.exact import exact
from portico.core.protocol.result_fields import error_result
from portico.core.protocol.tasks import without_tasks_raw
from portico.gateway.endpoints.metatool_definitions import EXECUTE_READ, EXECUTES, NAMES, RESERVED

_MAX_SCHEMA = 1_500


class InvalidCall(PorticoError):
    """A mistake in a call, explained so that a model can correct it."""

    def result(self) -> dict[str, Any]:
        """Return the explanation as a tool result."""
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
    """The prompt or resource template of a completion."""

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
    """Return the call or prompt request under the server's own name."""
    inner, _ = _named(request, tool)
    return inner


def _named(request: Request, name: str) -> tuple[Request, bytes]:
    """Return the call under another name, and its arguments."""
    inner = copy(request)
    inner.name = name
    try:
        found = _plain(request.params)
    except msgspec.DecodeError:  # it has other fields, or no arguments
        fields = exact(request.params)
        inner.params = encode({**fields, "name": Raw(encode(name))})
        return inner, bytes(fields.get("arguments", b"{}"))
    arguments = bytes(found.arguments)
    meta = b"" if found.meta is NO_RAW else _META % found.meta
    inner.params = _PARAMS % (encode(name), arguments, meta)
    return inner, arguments


def without_task_support(request: Request) -> Request:
    """Return the request without the task capability: its server must not create a task."""
    declared = request.meta.client_capabilities
    if not declared:
        return request
    kept = without_tasks_raw(declared)
    return request if kept is declared else with_capabilities(request, kept)


def with_uri(request: Request, uri: str) -> Request:
    """Return the request under the server's own URI."""
    fields = exact(request.params)
    if uri != request.uri:
        fields["uri"] = Raw(encode(uri))
    return replace(request, params=encode(fields), uri=uri)


def reference_of(request: Request) -> Reference:
    """Return the reference of a completion; raises InvalidParams."""
    return request.decode_as(_Complete).ref


def with_reference(request: Request, key: str, value: str) -> Request:
    """Return the completion under the server's own name or URI."""
    fields = exact(request.params)
    reference = members(fields.get("ref", b""))
    reference[key] = Raw(encode(value))
    fields["ref"] = Raw(encode(reference))
    return replace(request, params=encode(fields))


def unwrapping(
    next: Handler,
    other: Handler,
    on_invalid: Callable[[Request, Context, "InvalidCall"], Response],
    refuse_read: Callable[[Request, Context], Response | None],
    answer_hidden: Callable[[Request, Context], Answer | None] | None = None,
) -> Handler:
    """Wrap the next handler so that it sees `execute_tool` and `execute_read_tool` as calls of the
    named tool; `other` gets the calls of all tools that are not ours. `on_invalid` answers an
    invalid call, `refuse_read` a call of a tool that is not known to be read-only, and
    `answer_hidden` may answer for a hidden tool."""

    def handle(request: Request, context: Context) -> Answer:
        if request.method != "tools/call":
            return next(request, context)
        if request.name not in NAMES:
            return other(request, context)
        if request.name not in EXECUTES:
            request.asked = request.name
            return next(request, context)
        try:
            unwrap(request)
        except InvalidCall as invalid:
            return on_invalid(request, context, invalid)
        if request.asked == EXECUTE_READ:
            refusal = refuse_read(request, context)
            if refusal is not None:
                return refusal
        answer = None if answer_hidden is None else answer_hidden(request, context)
        return next(request, context) if answer is None else answer

    return handle


def unwrap(request: Request) -> None:
    """Turn a call of `execute_tool` or `execute_read_tool` into a call of the named tool; raises
    InvalidCall."""
    more = None
    meta = b""
    try:
        call = _execute(request.params)
        wanted = call.arguments
        meta = b"" if call.meta is NO_RAW else _META % call.meta
    except msgspec.DecodeError:
        # Other fields of the call (answers of an earlier round) are kept.
        more = exact(request.params)
        wanted = _read(bytes(more.get("arguments", b"")), request.name)
    if not wanted.name:
        raise InvalidCall(f"{request.name}: `name` is missing; {_SHAPE}")
    if wanted.name in RESERVED:
        raise InvalidCall(f"{wanted.name} is a meta-tool; call it directly")
    timeout = wanted.timeout_s or 0.0
    if timeout < 0:
        raise InvalidCall(f"{request.name}: timeout_s must be more than 0")
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
    """Return the call for its server after validating its arguments; raises InvalidCall."""
    namespaced, tool = place
    inner, raw = _named(request, tool)
    try:
        arguments = _anything(raw)
    except _UNREADABLE as error:
        raise _unreadable(request.name, error) from None
    if not isinstance(arguments, dict):
        raise InvalidCall(f"{request.name}: arguments must be a JSON object{_expected(place)}")
    schema = namespaced.schemas[tool] if tool in namespaced.schemas else namespaced.schema(tool)
    if schema is not None:
        if problems := schema.problems(arguments, len(raw)):
            words = sanitize_json(schema.describe(problems))
            raise InvalidCall(f"{request.name}: {words}{_expected(place)}")
        inner.arguments = arguments
    return inner


def not_read_only(name: str) -> InvalidCall:
    """Return the refusal of a tool that `execute_read_tool` does not call."""
    why = f"{name} is not marked as read-only, or the config does not trust its server's marks"
    return InvalidCall(f"{why}; call it with execute_tool")


def _unreadable(name: str, error: Exception) -> InvalidCall:
    return InvalidCall(f"{name[:200]}: arguments are not a JSON object: {error}")


def _read(given: bytes, tool: str) -> _Wanted:
    """Parse the arguments of a meta-tool that executes; raises InvalidCall."""
    try:
        return _wanted(given or b"{}")
    except msgspec.DecodeError as error:
        known = _Wanted.__struct_fields__
        unknown = [f"`{key[:40]}`" for key in members(given) if key not in known]
        if unknown:
            names = ", ".join(unknown[:5])
            why = f"{names} must be inside `arguments`"
        else:
            why = argument_error(str(error), _Wanted)
        raise InvalidCall(f"{tool}: {why}; {_SHAPE}") from None


_SHAPE = 'write {"name": "server__tool", "arguments": {...}}'


def _argument_object(name: str, raw: bytes) -> bytes:
    """Return the arguments as a JSON object; some models send it as a string."""
    if not raw or raw == b"null":
        return b"{}"
    if raw[:1] == b'"':
        words = msgspec.json.decode(raw, type=str)
        raw = words.encode() if words.strip() else b"{}"
        try:
            _anything(raw)  # it was not parsed yet
        except _UNREADABLE as error:
            raise _unreadable(name, error) from None
    return raw


def _expected(place: ItemRoute) -> str:
    """Describe the arguments that a tool accepts."""
    namespaced, tool = place
    schema = namespaced.definition(tool).get("inputSchema")
    compact = parameters(schema)
    whole = sanitize_json(encode(schema).decode())
    shown = f"; it takes {compact or 'no arguments'}"
    return f"{shown}\nschema: {whole}" if len(whole) <= _MAX_SCHEMA else shown
