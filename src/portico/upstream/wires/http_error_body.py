"""The error message in the body of an HTTP response, shortened and redacted."""

from collections.abc import Iterable
from typing import Any

import msgspec

from portico.upstream.process.stderr_tail import StderrTail

_KEYS = ("message", "error_description", "detail", "error")
"""Where JSON error bodies have their message."""
_JSON = "application/json"
_MAX_LENGTH = 200


def error_message(kind: str, body: bytes, secrets: Iterable[str]) -> str:
    """Return the message to append to the status; empty if there is none for people."""
    if kind not in ("", "text/plain", _JSON) or body.lstrip().startswith(b"<"):
        return ""  # such as an HTML page
    text = _message(body) if kind == _JSON else body.decode(errors="replace")
    # Of `Bearer abc`, a server may repeat only the end.
    tail = StderrTail(secrets=[part for one in secrets for part in (one, one.rpartition(" ")[2])])
    tail.add(text.strip().encode())
    words = " ".join(tail.tail(lines=3).split())
    return f": {words[:_MAX_LENGTH]}" if words else ""


def _message(body: bytes) -> str:
    try:
        value: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return ""
    for _ in range(2):  # the second time, of a nested object as in JSON-RPC
        if not isinstance(value, dict):
            break
        value = next((value[key] for key in _KEYS if key in value), "")
    return value if isinstance(value, str) else ""
