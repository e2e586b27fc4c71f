"""Bytes to envelopes and back. An envelope's id, params, result and error stay raw."""

from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from portico.model.errors import INVALID_REQUEST, PARSE_ERROR, InvalidParams, McpError
from portico.model.message import Request, Response
from portico.model.version import Version
from portico.protocol.depth import MAX_NESTING, is_too_deep

NO_RAW = Raw(b"")  # `Raw | None` cannot hold an object, so "absent" is an empty Raw.
MAX_BATCH = 100
_SHORT = 64 * 1024
"""Up to this size a broken message is searched whole for its id."""

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


class _Salvage(Struct, gc=False):
    """Anything with an id, to answer a message that is wrong in some other way."""

    id: Raw = NO_RAW


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


class ErrorBody(Struct, gc=False, omit_defaults=True):
    """The error object of an answer."""

    code: int
    message: str
    data: Any = UNSET


_envelope = msgspec.json.Decoder(Envelope).decode
# A struct takes no more members of an array than it has fields, and passes over the rest unread.
_members = msgspec.json.Decoder(
    msgspec.defstruct(
        "Batch",
        [(f"member_{at}", Raw, NO_RAW) for at in range(MAX_BATCH + 1)],
        array_like=True,
    )
).decode
_unread = msgspec.json.Decoder(Raw).decode
_salvage = msgspec.json.Decoder(_Salvage).decode
params_of = msgspec.json.Decoder(WireParams).decode
any_params_of = msgspec.json.Decoder(_AnyParams).decode


class Malformed(Exception):
    """A message that is no JSON-RPC message; carries the id if one could be read."""

    def __init__(self, code: int, message: str, id: bytes = b"") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.id = id


def read_message(data: bytes) -> Envelope | list[bytes]:
    """One envelope, or the first raw members of a batch, one past the limit; raises Malformed."""
    if not data.isascii():
        _check_text(data)
    # Counting is far cheaper than walking, and an honest message seldom comes near.
    if len(data) > MAX_NESTING and data.count(b"{") + data.count(b"[") > MAX_NESTING:
        _check_depth(data)
    try:
        return _envelope(data) if data[:1] == b"{" else _decode(data)
    except msgspec.ValidationError as error:
        # It stopped at the first field that is wrong; what follows may not even be JSON.
        raise _no_message(data, error) from None
    except msgspec.DecodeError as error:
        raise Malformed(PARSE_ERROR, f"not JSON: {error}", _id_despite_surrogates(data)) from None
    except RecursionError:
        raise Malformed(INVALID_REQUEST, "nested too deeply", id_at_an_end(data)) from None


def id_at_an_end(data: bytes) -> bytes:
    """The id of a request that cannot be read, if its first or last bytes tell it for certain."""
    from portico.protocol.salvage import id_at_an_end as found  # seldom needed, slow to load

    return found(data)


def _decode(data: bytes) -> Envelope | list[bytes]:
    if data.lstrip(b" \t\r\n").startswith(b"["):
        return [raw for raw in map(bytes, msgspec.structs.astuple(_members(data))) if raw]
    return _envelope(data)


def _no_message(data: bytes, error: msgspec.ValidationError) -> Malformed:
    """What is wrong with JSON that is no message, or no JSON either."""
    try:
        _unread(data)
    except msgspec.DecodeError as worse:
        return Malformed(PARSE_ERROR, f"not JSON: {worse}", _id_despite_surrogates(data))
    except RecursionError:
        return Malformed(INVALID_REQUEST, "nested too deeply", id_at_an_end(data))
    return Malformed(INVALID_REQUEST, f"not a JSON-RPC message: {error}", _salvaged_id(data))


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
    return Response(id=id, error=encode_whole(ErrorBody(code, message, data)), code=code)


def mcp_error_response(id: bytes, error: McpError) -> Response:
    """An error as the answer to send."""
    data = msgspec.UNSET if error.data is None else error.data
    return error_response(id, error.code, error.message, data)


def encode_whole(value: Any) -> bytes:
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


def decode_params(request: Request, type: type[T]) -> T:
    """The params as a type, or InvalidParams that names the field."""
    try:
        return msgspec.json.decode(request.params or b"{}", type=type)
    except msgspec.DecodeError as error:
        raise InvalidParams(f"params of {request.method}: {error}") from None


def notification(method: str, params: dict[str, Any] | None = None) -> bytes:
    """A whole notification, ready to send."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if params is not None:
        message["params"] = params
    return encode(message)


def _check_text(data: bytes) -> None:
    """Find what the decoder would pass over in the parts that it leaves raw."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise Malformed(PARSE_ERROR, f"not UTF-8 at byte {error.start}") from None


def _check_depth(data: bytes) -> None:
    if is_too_deep(data):
        words = f"nested deeper than {MAX_NESTING} levels"
        raise Malformed(INVALID_REQUEST, words, _salvaged_id(data))


def _salvaged_id(data: bytes) -> bytes:
    """The id of a message that is wrong in some other way; empty if there is none to be read."""
    try:
        id = bytes(_salvage(data).id)
    except msgspec.DecodeError:
        return b""
    except RecursionError:
        return id_at_an_end(data)
    return id if is_id(id) else b""


def _id_despite_surrogates(data: bytes) -> bytes:
    """The id of a message with half a surrogate pair in it, which JavaScript can send.

    Our decoder refuses it whole; without its id, the one who asked would wait for ever.
    """
    if b"\\ud" not in data.lower():
        return b""
    if len(data) > _SHORT:
        return id_at_an_end(data)
    import json

    try:
        id = json.loads(data, parse_constant=_no_number).get("id")
        raw = encode(id)
    except (AttributeError, ValueError, TypeError, RecursionError):
        return b""
    return raw if is_id(raw) and not isinstance(id, bool) else b""


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
