"""Bytes to envelopes and back. An envelope's id, params, result and error stay raw."""

from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from portico.model.errors import INTERNAL_ERROR, McpError
from portico.model.message import Response
from portico.model.version import Version

NO_RAW = Raw(b"")  # `Raw | None` cannot hold an object, so "absent" is an empty Raw.

encode = msgspec.json.Encoder().encode
T = TypeVar("T")


class Envelope(Struct, gc=False):
    """One JSON-RPC message as it came: a request, a notification or a client's answer."""

    jsonrpc: str = ""
    id: Raw = NO_RAW
    method: str = ""
    params: Raw = NO_RAW
    result: Raw = NO_RAW
    error: Raw = NO_RAW


class WireMeta(Struct, gc=False):
    """What a message says of its sender and its progress, as it came."""

    version: str | UnsetType = field(default=UNSET, name="io.modelcontextprotocol/protocolVersion")
    client_capabilities: Raw = field(
        default=NO_RAW, name="io.modelcontextprotocol/clientCapabilities"
    )
    client_info: Raw = field(default=NO_RAW, name="io.modelcontextprotocol/clientInfo")
    log_level: str = field(default="", name="io.modelcontextprotocol/logLevel")
    progress_token: Raw = field(default=NO_RAW, name="progressToken")


class _AnyParams(Struct, gc=False):
    """What every request may say, whatever its method."""

    meta: WireMeta | UnsetType = field(default=UNSET, name="_meta")


class WireParams(_AnyParams, gc=False):
    """All that the ladder and a static answer need of the params of a method we know."""

    cursor: str = ""
    name: str = ""
    uri: str = ""


class _ReadError(Struct):
    """An error object as the other side sent it, which may lack anything."""

    code: int = INTERNAL_ERROR
    message: str = ""
    data: Raw = Raw(b"null")


class _Cancelled(Struct):
    requestId: Raw = NO_RAW  # noqa: N815  (a field of the wire)


class ErrorBody(Struct, gc=False, omit_defaults=True):
    """The error object of an answer."""

    code: int
    message: str
    data: Any = UNSET


params_of = msgspec.json.Decoder(WireParams).decode
any_params_of = msgspec.json.Decoder(_AnyParams).decode


def is_id(raw: bytes) -> bool:
    """True for a string or an integer; null, fractions and everything else are no ids."""
    return raw.isdigit() or raw[:1] == b'"' or (raw[:1] == b"-" and raw[1:].isdigit())


def error_response(
    id: bytes,
    code: int,
    message: str,
    data: Any = UNSET,
    version: Version = Version.V2025_11_25,
) -> Response:
    """An error answer; without a readable id it says so as the version has it."""
    if not id and version < Version.V2025_11_25:
        id = b"null"
    return Response(id=id, error=encode_escaped(ErrorBody(code, message, data)), code=code)


def mcp_error_response(id: bytes, error: McpError) -> Response:
    """An error as the answer to send."""
    data = msgspec.UNSET if error.data is None else error.data
    return error_response(id, error.code, error.message, data)


def encode_escaped(value: Any) -> bytes:
    """The same of what may hold half a character, as a file's name can: that is spelled out."""
    try:
        return encode(value)
    except UnicodeEncodeError:
        return encode(_spelled(msgspec.to_builtins(value)))


def _spelled(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_spelled(key): _spelled(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_spelled(one) for one in value]
    return value


def decoded(raw: bytes, type: type[T]) -> T | None:
    """Raw JSON as a type; None if it cannot be read as one."""
    try:
        return msgspec.json.decode(raw or b"{}", type=type)
    except (msgspec.DecodeError, RecursionError):
        return None


def read_error(raw: bytes) -> tuple[int, str, Any] | None:
    """Code, message and data of an error that the other side sent; None if it is not an error.

    Data that cannot be read, such as a number that no float holds, is None.
    """
    error = decoded(raw, _ReadError)
    return None if error is None else (error.code, error.message, decoded(error.data, Any))


def cancelled_id(params: bytes) -> bytes:
    """The request that a `notifications/cancelled` names; empty if it is malformed, which is
    ignored (cancellation, error handling)."""
    notice = decoded(params, _Cancelled)
    return b"" if notice is None else bytes(notice.requestId)


def request_message(method: str, params: bytes, id: bytes) -> bytes:
    """A whole request made of raw parts, ready to send; it has no params if they are empty."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": Raw(id), "method": method}
    if params not in (b"", b"{}"):
        message["params"] = Raw(params)
    return encode(message)


def notification(method: str, params: dict[str, Any] | None = None) -> bytes:
    """A whole notification, ready to send."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if params is not None:
        message["params"] = params
    return encode(message)
