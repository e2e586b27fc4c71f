"""Decodes and encodes envelopes. An envelope's id, params, result and error stay raw."""

from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from portico.core.model.errors import INTERNAL_ERROR, McpError
from portico.core.model.message import Response
from portico.core.model.version import Version

NO_RAW = Raw(b"")  # `Raw | None` cannot hold an object, so "absent" is an empty Raw.

encode = msgspec.json.Encoder().encode
T = TypeVar("T")


class Envelope(Struct, gc=False):
    """One JSON-RPC message as received: a request, a notification or a client's answer."""

    jsonrpc: str = ""
    id: Raw = NO_RAW
    method: str = ""
    params: Raw = NO_RAW
    result: Raw = NO_RAW
    error: Raw = NO_RAW


class WireMeta(Struct, gc=False):
    """The `_meta` of a message as received: its sender and its progress token."""

    version: str | UnsetType = field(default=UNSET, name="io.modelcontextprotocol/protocolVersion")
    client_capabilities: Raw = field(
        default=NO_RAW, name="io.modelcontextprotocol/clientCapabilities"
    )
    client_info: Raw = field(default=NO_RAW, name="io.modelcontextprotocol/clientInfo")
    log_level: str = field(default="", name="io.modelcontextprotocol/logLevel")
    progress_token: Raw = field(default=NO_RAW, name="progressToken")


class _AnyParams(Struct, gc=False):
    """The params that any method may have."""

    meta: WireMeta | UnsetType = field(default=UNSET, name="_meta")


class WireParams(_AnyParams, gc=False):
    """The params of known methods that the ladder and static answers need."""

    cursor: str = ""
    name: str = ""
    uri: str = ""


class _ReadError(Struct):
    """An error object as received; any field may be missing."""

    code: int = INTERNAL_ERROR
    message: str = ""
    data: Raw = Raw(b"null")


class _Cancelled(Struct):
    requestId: Raw = NO_RAW  # noqa: N815  (a field of the wire)


class ErrorBody(Struct, gc=False, omit_defaults=True):
    """The error object of a response."""

    code: int
    message: str
    data: Any = UNSET


params_of = msgspec.json.Decoder(WireParams).decode
any_params_of = msgspec.json.Decoder(_AnyParams).decode


def may_mention(raw: bytes, word: bytes) -> bool:
    """False if a JSON text cannot contain a word, even with escapes. True decides nothing: decode
    the text before a right depends on it."""
    if raw.find(word) >= 0 or raw.find(b"\\u") >= 0:
        return True
    return b"/" in word and raw.find(b"\\/") >= 0


def is_id(raw: bytes) -> bool:
    """True for a string or an integer; null, fractions and all other JSON are not ids."""
    return raw.isdigit() or raw[:1] == b'"' or (raw[:1] == b"-" and raw[1:].isdigit())


def error_response(
    id: bytes,
    code: int,
    message: str,
    data: Any = UNSET,
    version: Version = Version.V2025_11_25,
) -> Response:
    """Return an error response; an unreadable id is null, or left out, by version."""
    if not id and version < Version.V2025_11_25:
        id = b"null"
    return Response(id=id, error=encode_escaped(ErrorBody(code, message, data)), code=code)


def mcp_error_response(id: bytes, error: McpError) -> Response:
    """Return the response for an error."""
    data = msgspec.UNSET if error.data is None else error.data
    return error_response(id, error.code, error.message, data)


def encode_escaped(value: Any) -> bytes:
    """Encode a value that may contain lone surrogates, as file names can: they are escaped."""
    try:
        return encode(value)
    except UnicodeEncodeError:
        return encode(_escaped(msgspec.to_builtins(value)))


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_escaped(key): _escaped(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_escaped(item) for item in value]
    return value


def decoded(raw: bytes, type: type[T]) -> T | None:
    """Decode raw JSON as a type; return None if it does not fit."""
    try:
        return msgspec.json.decode(raw or b"{}", type=type)
    except (msgspec.DecodeError, RecursionError):
        return None


def read_error(raw: bytes) -> tuple[int, str, Any] | None:
    """Return the code, message and data of a received error; None if it is not an error.

    The data becomes None if it cannot be decoded, such as a number beyond a float.
    """
    error = decoded(raw, _ReadError)
    return None if error is None else (error.code, error.message, decoded(error.data, Any))


def cancelled_id(params: bytes) -> bytes:
    """Return the id in a `notifications/cancelled`; empty if it is malformed, which is ignored
    (cancellation, error handling)."""
    cancelled = decoded(params, _Cancelled)
    return b"" if cancelled is None else bytes(cancelled.requestId)


def request_message(method: str, params: bytes, id: bytes) -> bytes:
    """Encode a request from raw parts, without params if they are empty."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": Raw(id), "method": method}
    if params not in (b"", b"{}"):
        message["params"] = Raw(params)
    return encode(message)


def notification(method: str, params: dict[str, Any] | None = None) -> bytes:
    """Encode a notification."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if params is not None:
        message["params"] = params
    return encode(message)
