"""The body of a response, written to a file as it arrives: bounded, and resumed by ranges."""

import asyncio
import re
from typing import BinaryIO, Protocol

from portico.core.http1.errors import ConnectionLost, InvalidBody
from portico.core.http1.response import Http1Response

_RANGE = re.compile(r"bytes\s+(\d{1,18})-(\d{1,18})/(?:\d{1,18}|\*)", re.IGNORECASE | re.ASCII)


class Sink(Protocol):
    """Sees each piece that is written, such as a hash."""

    def update(self, data: bytes, /) -> object:
        """Add a piece."""


def resumed_at(response: Http1Response) -> int:
    """Return the position of the body in its file: 0 unless it is a part (RFC 9110, 15.3.7).

    Raises InvalidBody if the part is not described.
    """
    if response.status != 206:
        return 0
    found = _RANGE.fullmatch(response.headers.get("content-range", "").strip())
    if found is None:
        raise InvalidBody("sent a part of a file without saying which")
    return int(found[1])


def check_length(response: Http1Response, size: int) -> None:
    """Raise InvalidBody if the response announces another size, before any of it is read."""
    length = response.headers.get("content-length", "")
    if length.isascii() and length.isdigit() and int(length) != size:
        raise InvalidBody(f"announced {int(length):,} bytes instead of {size:,}")


async def write_body(
    response: Http1Response, file: BinaryIO, size: int, stall_s: float, *sinks: Sink
) -> None:
    """Write a body of exactly this size, at the file's position; raises Http1Error or OSError.

    The pieces before a failure stay in the file, so that a later request can resume.
    """
    left = size
    while piece := await _next(response, stall_s):
        if len(piece) > left:
            raise InvalidBody(f"sent more than the {size:,} bytes that were expected")
        file.write(piece)
        left -= len(piece)
        for sink in sinks:
            sink.update(piece)
    if left:
        raise InvalidBody(f"sent {size - left:,} of {size:,} bytes")


async def read_body(response: Http1Response, max_size: int, stall_s: float) -> bytes:
    """Return a whole body of at most this size; raises Http1Error."""
    parts: list[bytes] = []
    size = 0
    while piece := await _next(response, stall_s):
        parts.append(piece)
        size += len(piece)
        if size > max_size:
            raise InvalidBody(f"sent more than {max_size:,} bytes, the limit")
    return b"".join(parts)


async def _next(response: Http1Response, stall_s: float) -> bytes:
    """Return the next piece, empty after the last."""
    try:
        async with asyncio.timeout(stall_s):
            return await anext(response, b"")
    except TimeoutError:
        raise ConnectionLost(f"sent nothing for {stall_s:g} s") from None
