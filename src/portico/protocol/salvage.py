"""Finds the id of a message that cannot be read, so that its sender gets an answer."""

import json
import re

import msgspec
from msgspec import Raw, Struct

from portico.protocol.codec import NO_RAW, encode, is_id

_SHORT = 64 * 1024
"""Up to this size a message that is not JSON to us is read whole by another decoder."""
_NEAR = 256
_ID = rb'"id"\s*:\s*(-?\d+|"(?:[^"\\]|\\.)*")\s*'
_WORD = rb'"(?:jsonrpc|method)"\s*:\s*"[^"\\]*"\s*'
# Only words stand between the id and an end of the message, so it is the message's own id.
_FIRST = re.compile(rb"\s*\{\s*(?:" + _WORD + rb",\s*)*" + _ID + rb"[,}]")
_LAST = re.compile(rb"[,{]\s*" + _ID + rb"(?:,\s*" + _WORD + rb")*\}\s*\Z")
_ANSWER = re.compile(rb"\s*\{\s*(?:(?:" + _WORD + rb"|" + _ID + rb'),\s*)*"(?:result|error)"\s*:')


class _Identified(Struct):
    id: Raw = NO_RAW


def recovered_id(data: bytes) -> bytes:
    """The id of a message that is wrong in some other way; empty if none can be read."""
    try:
        id = bytes(msgspec.json.decode(data, type=_Identified).id)
    except msgspec.DecodeError:
        id = _id_despite_surrogates(data)
    except RecursionError:
        id = id_at_edge(data)
    return id if is_id(id) else b""


def _id_despite_surrogates(data: bytes) -> bytes:
    """The id of a message with half a surrogate pair in it, which JavaScript can send, and which
    our decoder refuses whole."""
    if b"\\ud" not in data.lower():
        return b""
    if len(data) > _SHORT:
        return id_at_edge(data)
    try:
        return encode(json.loads(data, parse_constant=_refuse).get("id"))
    except (AttributeError, ValueError, TypeError, RecursionError):
        return b""


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def id_at_edge(message: bytes) -> bytes:
    """The id in the first or last few bytes of a request; empty if none is there for certain."""
    if _ANSWER.match(message[:_NEAR]):
        return b""  # nobody waits for an answer to an answer
    found = _FIRST.match(message[:_NEAR]) or _LAST.search(message[-_NEAR:])
    return found[1] if found else b""
