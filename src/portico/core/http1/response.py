"""An HTTP response as it arrives: its head, then its body, buffered up to a limit."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol, Self

from portico.core.http1.errors import Http1Error

MAX_SMALL_BODY = 64 * 1024
"""A body up to this size is awaited as a whole, and written in one piece."""
HIGH_WATER, LOW_WATER = 256 * 1024, 64 * 1024
"""Buffered bytes at which reading from the server pauses, and at which it resumes."""


class BodySource(Protocol):
    """The connection that receives a response."""

    def resume(self) -> None:
        """Read on."""

    def release_slot(self) -> None:
        """Stop counting against the limit of connections."""

    def drop(self, response: "Http1Response") -> None:
        """Close the connection: the rest of the response is not needed."""


class Http1Response:
    """The part of a response that has arrived. One reader iterates over its body, once."""

    __slots__ = (
        "_error",
        "_on_ready",
        "_source",
        "_waiter",
        "buffered",
        "chunks",
        "headers",
        "is_small",
        "is_whole",
        "reason",
        "sent_as",
        "status",
    )

    def __init__(
        self, source: BodySource, on_ready: Callable[["Http1Response"], None] | None
    ) -> None:
        """Call `on_ready` once: when a small response is complete, when the head of another is, or
        when it failed, in which case `head` raises."""
        self.status = 0
        """Zero until the head is complete."""
        self.reason = ""
        self.sent_as = ""
        """A note of the sender: the credentials that the request carried."""
        self.headers: dict[str, str] = {}
        """By name in lower case; repeated headers are joined by a comma."""
        self.is_small = False
        self.is_whole = False
        """True once the response is complete."""
        self._source = source
        self._on_ready = on_ready
        self.chunks: deque[bytes] = deque()
        self.buffered = 0
        self._error: Http1Error | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def is_success(self) -> bool:
        """True for a status of 2xx."""
        return 200 <= self.status < 300

    async def head(self) -> None:
        """Wait for status and headers; raises Http1Error."""
        while not self.status:
            if self._error is not None:
                raise self._error
            await self._wait()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        """Return the next piece of the body; raises Http1Error if it is cut off."""
        while not self.chunks:
            if self.is_whole:
                raise StopAsyncIteration
            if self._error is not None:
                raise self._error
            await self._wait()
        return self._pop()

    def body(self) -> bytes | None:
        """Return the whole body; None if it is not complete."""
        if not self.is_whole:
            return None
        return self.chunks[0] if len(self.chunks) == 1 else b"".join(self.chunks)

    def clear_callback(self) -> None:
        """Do not call `on_ready` any more: a task reads the response."""
        self._on_ready = None

    def release_slot(self) -> None:
        """Release the connection's slot: only the end of the stream is still awaited."""
        if not self.is_over():
            self._source.release_slot()

    def close(self) -> None:
        """Stop reading; the connection is closed unless the response is complete."""
        self._on_ready = None
        if not self.is_over():
            self._source.drop(self)

    # Called by the connection.

    def add(self, chunk: bytes) -> None:
        """Add a piece of the body."""
        self.chunks.append(chunk)
        self.buffered += len(chunk)

    def is_over(self) -> bool:
        """True if it is complete or failed."""
        return self.is_whole or self._error is not None

    def is_full(self) -> bool:
        """True if reading should pause."""
        return self.buffered > HIGH_WATER and not self.is_whole

    def fail(self, error: Http1Error) -> None:
        """End it with an error, unless it has ended."""
        if not self.is_over():
            self._error = error

    def wake(self) -> None:
        """Call `on_ready` if it is ready, or wake the reader."""
        if self._on_ready is not None:
            if self.is_over() or (self.status and not self.is_small):
                on_ready, self._on_ready = self._on_ready, None
                on_ready(self)
        elif self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _pop(self) -> bytes:
        chunk = self.chunks.popleft()
        before = self.buffered
        self.buffered -= len(chunk)
        if self.buffered <= LOW_WATER < before and not self.is_whole:
            self._source.resume()
        return chunk

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
