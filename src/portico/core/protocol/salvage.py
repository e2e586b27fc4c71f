"""Recovers the id of a malformed message, so that its sender gets a response."""

import json
import re

import msgspec
from msgspec import Raw, Struct

from portico.core.protocol.codec import NO_RAW, encode, is_id

_MAX_DECODED = 64 * 1024
"""The largest message that a second, slower decoder gets when ours fails."""
_EDGE = 256
_ID = rb'"id"\s*:\s*(-?\d+|"(?:[^"\\]|\\.)*")\s*'
_WORD = rb'"(?:jsonrpc|method)"\s*:\s*"[^"\\]*"\s*'
# Only these fields are between the id and an edge of the message, so it is the message's own.
_FIRST = re.compile(rb"\s*\{\s*(?:" + _WORD + rb",\s*)*" + _ID + rb"[,}]")
_LAST = re.compile(rb"[,{]\s*" + _ID + rb"(?:,\s*" + _WORD + rb")*\}\s*\Z")
_ANSWER = re.compile(rb"\s*\{\s*(?:(?:" + _WORD + rb"|" + _ID + rb'),\s*)*"(?:result|error)"\s*:')


class _Identified(Struct):
    id: Raw = NO_RAW


def recovered_id(data: bytes) -> bytes:
    """Return the id of a malformed message; empty if it has no readable id."""
    try:
        id = bytes(msgspec.json.decode(data, type=_Identified).id)
    except msgspec.DecodeError:
        id = _id_despite_surrogates(data)
    except RecursionError:
        id = id_at_edge(data)
    return id if is_id(id) else b""


def _id_despite_surrogates(data: bytes) -> bytes:
    """Return the id of a message with a lone surrogate, which JavaScript can send and our decoder
    rejects."""
    if b"\\ud" not in data.lower():
        return b""
    if len(data) > _MAX_DECODED:
        return id_at_edge(data)
    try:
        return encode(json.loads(data, parse_constant=_reject).get("id"))
    except (AttributeError, ValueError, TypeError, RecursionError):
        return b""


def _reject(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def id_at_edge(message: bytes) -> bytes:
    """Return the id in the first or last bytes of a request; empty unless it is certain."""
    if _ANSWER.match(message[:_EDGE]):
        return b""  # a response gets no response
    found = _FIRST.match(message[:_EDGE]) or _LAST.search(message[-_EDGE:])
    return found[1] if found else b""
