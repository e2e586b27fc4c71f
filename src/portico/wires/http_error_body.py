"""What an HTTP server says of a refusal in its own words, short and without secrets."""

from collections.abc import Iterable
from typing import Any

import msgspec

from portico.process.stderr_tail import StderrTail

_KEYS = ("message", "error_description", "detail", "error")
"""Where those that refuse in JSON put their words."""
_JSON = "application/json"
_LONGEST = 200


def own_words(kind: str, body: bytes, secrets: Iterable[str]) -> str:
    """The words of a refusal, to be put behind its status; empty if it has none for people."""
    if kind not in ("", "text/plain", _JSON) or body.lstrip().startswith(b"<"):
        return ""  # a page, say
    said = _message(body) if kind == _JSON else body.decode(errors="replace")
    # Of `Bearer abc`, a server may repeat no more than the end.
    ring = StderrTail(secrets=[part for one in secrets for part in (one, one.rpartition(" ")[2])])
    ring.add(said.strip().encode())
    words = " ".join(ring.tail(lines=3).split())
    return f": {words[:_LONGEST]}" if words else ""


def _message(body: bytes) -> str:
    try:
        told: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return ""
    for _ in range(2):  # the second time, of an object like that of JSON-RPC
        if not isinstance(told, dict):
            break
        told = next((told[key] for key in _KEYS if key in told), "")
    return told if isinstance(told, str) else ""
