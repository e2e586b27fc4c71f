"""Sorts what came in: a request to serve, a client's answer, or a refusal with its answer."""

from collections.abc import Mapping

from msgspec import Struct

from portico.model.errors import INVALID_REQUEST
from portico.model.message import Request, Response
from portico.model.version import LATEST_LEGACY, Version
from portico.protocol.codec import (
    MAX_BATCH,
    Envelope,
    Malformed,
    error_response,
    is_id,
    read_message,
)
from portico.protocol.ladder import Rejection, admit


class Answer(Struct, frozen=True):
    """A client's answer to a question of ours."""

    id: bytes
    result: bytes
    error: bytes


class Refused(Struct, frozen=True):
    """A message that goes no further, and its answer."""

    response: Response
    version: Version
    bare: bool = False
    """True if HTTP says it by a status without a body."""
    is_notice: bool = False
    """True for a notification: only HTTP, where every message is answered, says what was wrong."""


Inbound = Request | Answer | Refused | list["Request | Answer | Refused"]


def read(data: bytes, assumed: Version | None, headers: Mapping[str, str] | None = None) -> Inbound:
    """One message, or the members of a batch where the version has batches."""
    try:
        message = read_message(data)
    except Malformed as bad:
        version = assumed or LATEST_LEGACY
        return Refused(error_response(bad.id, bad.code, bad.message, version=version), version)
    if not isinstance(message, Envelope):
        return _batch(message, assumed, headers)
    if not message.method and (message.result or message.error) and message.id:
        return Answer(bytes(message.id), bytes(message.result), bytes(message.error))
    admitted = admit(message, assumed, headers)
    if isinstance(admitted, Rejection):
        return refuse(bytes(message.id), admitted, assumed, bool(message.method))
    return admitted


def _batch(
    message: list[bytes], assumed: Version | None, headers: Mapping[str, str] | None
) -> Refused | list[Request | Answer | Refused]:
    if assumed is not Version.V2025_03_26:
        refusal = "a batch is only allowed in protocol version 2025-03-26"
    elif not message:
        refusal = "an empty batch"
    elif len(message) > MAX_BATCH:
        refusal = f"a batch of more than {MAX_BATCH} messages"
    else:
        return [_member(raw, assumed, headers) for raw in message]
    version = assumed or LATEST_LEGACY
    return Refused(error_response(b"", INVALID_REQUEST, refusal, version=version), version)


def _member(
    raw: bytes, assumed: Version, headers: Mapping[str, str] | None
) -> Request | Answer | Refused:
    inbound = read(raw, assumed, headers)
    if isinstance(inbound, list):
        id, refusal = b"", "a batch inside a batch"
    elif isinstance(inbound, Request) and inbound.method == "initialize":
        id, refusal = inbound.id, "initialize must not be part of a batch"
    else:
        return inbound
    return Refused(error_response(id, INVALID_REQUEST, refusal, version=assumed), assumed)


def refuse(
    id: bytes, rejection: Rejection, assumed: Version | None = None, is_call: bool = True
) -> Refused:
    """A rejection as the answer to send."""
    version = rejection.version
    if assumed is not None and not version.modern:
        version = assumed
    response = error_response(
        id if is_id(id) else b"", rejection.code, rejection.message, rejection.data, version
    )
    return Refused(response, version, rejection.bare, is_call and not id)
