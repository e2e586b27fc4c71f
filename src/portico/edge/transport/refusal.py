"""The answer to a client over stdio whose server cannot start; refusals of HTTP: `reply.py`."""

import contextlib
import os
import select
import time

from portico.core.model.errors import INTERNAL_ERROR
from portico.core.model.message import Request
from portico.core.model.version import LATEST_LEGACY
from portico.core.protocol.codec import error_response
from portico.core.protocol.inbound import read

_WAIT_S = 1.0
"""How long a client has to send its first request; most have sent it by then."""
_MAX_LINE = 1024 * 1024


def refuse_client(why: str, out: int) -> None:
    """Answer the client's first request with an error, so that it can show the reason."""
    with contextlib.suppress(OSError, ValueError):
        line = _first_line()
        request = read(line, LATEST_LEGACY, None) if line else None
        if isinstance(request, Request) and request.id:
            os.write(out, error_response(request.id, INTERNAL_ERROR, why).encode() + b"\n")


def _first_line() -> bytes:
    until = time.monotonic() + _WAIT_S
    received = b""
    while b"\n" not in received and len(received) < _MAX_LINE:
        left = until - time.monotonic()
        if left <= 0 or os.isatty(0) or not select.select([0], [], [], left)[0]:
            return b""
        data = os.read(0, _MAX_LINE)
        if not data:
            return b""
        received += data
    return received.partition(b"\n")[0]
