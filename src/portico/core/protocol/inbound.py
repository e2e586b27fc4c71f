"""Parses received messages: requests, a client's answers, or refusals with their responses."""

from collections.abc import Mapping

import msgspec
from msgspec import Raw, Struct

from portico.core.model.errors import INVALID_REQUEST, PARSE_ERROR
from portico.core.model.message import Request, Response
from portico.core.model.version import LATEST_LEGACY, Version
from portico.core.protocol.codec import NO_RAW, Envelope, error_response, is_id
from portico.core.protocol.depth import MAX_NESTING, is_too_deep
from portico.core.protocol.ladder import Rejection, admit

MAX_BATCH = 100


class ClientAnswer(Struct, frozen=True):
    """A client's answer to a question of ours."""

    id: bytes
    result: bytes
    error: bytes


class RefusedMessage(Struct, frozen=True):
    """A message that is refused, and its response."""

    response: Response
    version: Version
    bare: bool = False
    """True if HTTP responds with a status and no body."""
    is_notification: bool = False
    """True for a notification: only HTTP, which answers every message, sends the response."""


Inbound = Request | ClientAnswer | RefusedMessage | list["Request | ClientAnswer | RefusedMessage"]


_envelope = msgspec.json.Decoder(Envelope).decode
# A struct decodes at most as many members of an array as it has fields, and skips the rest.
_members = msgspec.json.Decoder(
    msgspec.defstruct(
        "Batch",
        [(f"member_{at}", Raw, NO_RAW) for at in range(MAX_BATCH + 1)],
        array_like=True,
    )
).decode
_unread = msgspec.json.Decoder(Raw).decode


def read(data: bytes, assumed: Version | None, headers: Mapping[str, str] | None = None) -> Inbound:
    """Parse one message, or the members of a batch if the version has batches."""
    try:
        message = read_message(data)
    except Malformed as bad:
        version = assumed or LATEST_LEGACY
        return RefusedMessage(
            error_response(bad.id, bad.code, bad.message, version=version), version
        )
    if not isinstance(message, Envelope):
        return _batch(message, assumed, headers)
    if not message.method and (message.result or message.error) and message.id:
        return ClientAnswer(bytes(message.id), bytes(message.result), bytes(message.error))
    admitted = admit(message, assumed, headers)
    if isinstance(admitted, Rejection):
        return refuse(bytes(message.id), admitted, assumed, bool(message.method))
    return admitted


def _batch(
    message: list[bytes], assumed: Version | None, headers: Mapping[str, str] | None
) -> RefusedMessage | list[Request | ClientAnswer | RefusedMessage]:
    if assumed is not Version.V2025_03_26:
        refusal = "a batch is only allowed in protocol version 2025-03-26"
    elif not message:
        refusal = "an empty batch"
    elif len(message) > MAX_BATCH:
        refusal = f"a batch of more than {MAX_BATCH} messages"
    else:
        return [_member(raw, assumed, headers) for raw in message]
    version = assumed or LATEST_LEGACY
    return RefusedMessage(error_response(b"", INVALID_REQUEST, refusal, version=version), version)


def _member(
    raw: bytes, assumed: Version, headers: Mapping[str, str] | None
) -> Request | ClientAnswer | RefusedMessage:
    inbound = read(raw, assumed, headers)
    if isinstance(inbound, list):
        id, refusal = b"", "a batch inside a batch"
    elif isinstance(inbound, Request) and inbound.method == "initialize":
        id, refusal = inbound.id, "initialize must not be part of a batch"
    else:
        return inbound
    return RefusedMessage(error_response(id, INVALID_REQUEST, refusal, version=assumed), assumed)


def refuse(
    id: bytes, rejection: Rejection, assumed: Version | None = None, is_call: bool = True
) -> RefusedMessage:
    """Return a rejection with the response to send."""
    version = rejection.version
    if assumed is not None and not version.modern:
        version = assumed
    response = error_response(
        id if is_id(id) else b"", rejection.code, rejection.message, rejection.data, version
    )
    return RefusedMessage(response, version, rejection.bare, is_call and not id)


class Malformed(Exception):
    """The data is not a JSON-RPC message; carries the id if it is readable."""

    def __init__(self, code: int, message: str, id: bytes = b"") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.id = id


def read_message(data: bytes) -> Envelope | list[bytes]:
    """Parse an envelope, or a batch up to one member past the limit; raise Malformed."""
    if not data.isascii():
        _check_text(data)
    # Counting is far cheaper than scanning, and honest messages seldom come near the limit.
    if len(data) > MAX_NESTING and data.count(b"{") + data.count(b"[") > MAX_NESTING:
        _check_depth(data)
    try:
        return _envelope(data) if data[:1] == b"{" else _decode(data)
    except msgspec.ValidationError as error:
        # The decoder stopped at the first invalid field; the rest may not even be JSON.
        raise _invalid_message(data, error) from None
    except msgspec.DecodeError as error:
        raise _malformed(data, PARSE_ERROR, f"not JSON: {error}") from None
    except RecursionError:
        raise _malformed(data, INVALID_REQUEST, "nested too deeply") from None


def _malformed(data: bytes, code: int, message: str) -> Malformed:
    from portico.core.protocol.salvage import recovered_id  # seldom needed, slow to load

    return Malformed(code, message, recovered_id(data))


def _decode(data: bytes) -> Envelope | list[bytes]:
    if data.lstrip(b" \t\r\n").startswith(b"["):
        return [raw for raw in map(bytes, msgspec.structs.astuple(_members(data))) if raw]
    return _envelope(data)


def _invalid_message(data: bytes, error: msgspec.ValidationError) -> Malformed:
    """Describe an invalid message, which may not be JSON either."""
    try:
        _unread(data)
    except msgspec.DecodeError as worse:
        return _malformed(data, PARSE_ERROR, f"not JSON: {worse}")
    except RecursionError:
        return _malformed(data, INVALID_REQUEST, "nested too deeply")
    return _malformed(data, INVALID_REQUEST, f"not a JSON-RPC message: {error}")


def _check_text(data: bytes) -> None:
    """Raise Malformed for invalid UTF-8: the decoder does not check the parts that it keeps raw."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise Malformed(PARSE_ERROR, f"not UTF-8 at byte {error.start}") from None


def _check_depth(data: bytes) -> None:
    if is_too_deep(data):
        raise _malformed(data, INVALID_REQUEST, f"nested deeper than {MAX_NESTING} levels")
