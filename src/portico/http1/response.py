"""One answer over HTTP on its way in: its head, then its body, never more of it than is read."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol, Self

from portico.http1.errors import Http1Error

SMALL = 64 * 1024
"""Up to this size a body is waited for as a whole, and written in one piece."""
HIGH, LOW = 256 * 1024, 64 * 1024
"""Bytes that may wait to be read before the server has to wait, and until it may go on."""


class BodySource(Protocol):
    """The connection that an answer comes from."""

    def resume(self) -> None:
        """There is room again."""
        ...

    def leave(self) -> None:
        """It need not count among the connections any more."""
        ...

    def drop(self, response: "Http1Response") -> None:
        """Nobody wants the rest of it."""
        ...


class Http1Response:
    """What came so far. Its body is iterated over by one reader, once."""

    __slots__ = (
        "_ready",
        "_source",
        "_trouble",
        "_waiter",
        "chunks",
        "headers",
        "held",
        "is_small",
        "is_whole",
        "reason",
        "status",
    )

    def __init__(self, source: BodySource, ready: Callable[["Http1Response"], None] | None) -> None:
        """`ready` is called once: with the whole answer if it is small, else with its head, or
        with what went wrong, for which `head` then raises."""
        self.status = 0
        """Zero until the head is there."""
        self.reason = ""
        self.headers: dict[str, str] = {}
        """By names in small letters; what came twice is joined by a comma."""
        self.is_small = False
        self.is_whole = False
        """True once all of it came."""
        self._source = source
        self._ready = ready
        self.chunks: deque[bytes] = deque()
        self.held = 0
        self._trouble: Http1Error | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def is_success(self) -> bool:
        """True if the server did what it was asked."""
        return 200 <= self.status < 300

    async def head(self) -> None:
        """Wait until status and headers are there; raises Trouble."""
        while not self.status:
            if self._trouble is not None:
                raise self._trouble
            await self._news()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        """The next piece of the body; raises Trouble if it is cut off."""
        while not self.chunks:
            if self.is_whole:
                raise StopAsyncIteration
            if self._trouble is not None:
                raise self._trouble
            await self._news()
        return self._take()

    def body(self) -> bytes | None:
        """The whole body, unless some of it is still to come."""
        if not self.is_whole:
            return None
        return self.chunks[0] if len(self.chunks) == 1 else b"".join(self.chunks)

    def follow(self) -> None:
        """It is read by a task from now on, and nobody called."""
        self._ready = None

    def linger(self) -> None:
        """Only its end is waited for: it keeps no other request waiting."""
        if not self.is_over():
            self._source.leave()

    def close(self) -> None:
        """No more of it is wanted; unless it is whole, its connection is closed."""
        self._ready = None
        if not self.is_over():
            self._source.drop(self)

    # What the connection does with it.

    def add(self, chunk: bytes) -> None:
        """More of the body came."""
        self.chunks.append(chunk)
        self.held += len(chunk)

    def is_over(self) -> bool:
        """True if nothing more can come."""
        return self.is_whole or self._trouble is not None

    def is_full(self) -> bool:
        """True if no more should come for now."""
        return self.held > HIGH and not self.is_whole

    def fail(self, trouble: Http1Error) -> None:
        """It will never be whole."""
        if not self.is_over():
            self._trouble = trouble

    def wake(self) -> None:
        """Something happened: tell whoever waits, if it is what they wait for."""
        if self._ready is not None:
            if self.is_over() or (self.status and not self.is_small):
                ready, self._ready = self._ready, None
                ready(self)
        elif self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _take(self) -> bytes:
        chunk = self.chunks.popleft()
        before = self.held
        self.held -= len(chunk)
        if self.held <= LOW < before and not self.is_whole:
            self._source.resume()
        return chunk

    async def _news(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
