"""Finds the id of a request that cannot be read, so that whoever asked is told."""

import re

_NEAR = 256
_ID = rb'"id"\s*:\s*(-?\d+|"(?:[^"\\]|\\.)*")\s*'
_WORD = rb'"(?:jsonrpc|method)"\s*:\s*"[^"\\]*"\s*'
# Only words stand between the id and an end of the message, so it is the message's own id.
_FIRST = re.compile(rb"\s*\{\s*(?:" + _WORD + rb",\s*)*" + _ID + rb"[,}]")
_LAST = re.compile(rb"[,{]\s*" + _ID + rb"(?:,\s*" + _WORD + rb")*\}\s*\Z")
_ANSWER = re.compile(rb"\s*\{\s*(?:(?:" + _WORD + rb"|" + _ID + rb'),\s*)*"(?:result|error)"\s*:')


def id_at_an_end(message: bytes) -> bytes:
    """The id in the first or last few bytes of a request; empty if none is there for certain."""
    if _ANSWER.match(message[:_NEAR]):
        return b""  # nobody waits for an answer to an answer
    found = _FIRST.match(message[:_NEAR]) or _LAST.search(message[-_NEAR:])
    return found[1] if found else b""
