"""SSE events, their keepalive, and a response that becomes a stream when it needs one."""

import asyncio
from collections.abc import Callable
from itertools import cycle
from typing import Protocol

from portico.core.http1.port import Headers, ResponseWriter
from portico.core.protocol.line_reader import one_line

EVENT_STREAM: Headers = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-store, no-transform"),
    # Proxies must not hold events back (2026-07-28, receiving messages).
    (b"x-accel-buffering", b"no"),
)
COMMENT = b":\n\n"
_SLOTS = 16


def event(message: bytes, id: str = "", name: bytes = b"message") -> bytes:
    """Encode a message as an SSE event."""
    message = one_line(message)
    if id:
        return b"id: %b\nevent: %b\ndata: %b\n\n" % (id.encode(), name, message)
    return b"event: %b\ndata: %b\n\n" % (name, message)


def priming_event(id: str, retry_ms: int) -> bytes:
    """Encode the event that lets a client resume a stream before its first message (SEP-1699)."""
    return b"id: %b\nretry: %d\ndata: \n\n" % (id.encode(), retry_ms)


class KeptAlive(Protocol):
    """A response that may be quiet for a long time."""

    def send_keepalive_if_quiet(self) -> None:
        """Send a comment if nothing was sent since the last tick."""


class Keepalive:
    """Keeps the quiet streams of one app alive, with one timer for all of them.

    It checks each stream twice in `quiet_s`, one slot at a time, so that ten thousand quiet
    streams do not all need the event loop at once.
    """

    def __init__(self, quiet_s: float) -> None:
        self._step_s = quiet_s / 2 / _SLOTS
        self._slots: tuple[set[KeptAlive], ...] = tuple(set() for _ in range(_SLOTS))
        self._next_slot = cycle(self._slots)
        self._timer: asyncio.TimerHandle | None = None

    def add(self, response: KeptAlive) -> set[KeptAlive]:
        """Keep a response alive until it is removed from the set that this returns."""
        slot = next(self._next_slot)
        slot.add(response)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._step_s, self._tick, loop, 0)
        return slot

    def _tick(self, loop: asyncio.AbstractEventLoop, number: int) -> None:
        self._timer = None
        if any(self._slots):  # set first: a failure below must not stop the timer
            next_slot = (number + 1) % _SLOTS
            self._timer = loop.call_later(self._step_s, self._tick, loop, next_slot)
        for response in tuple(self._slots[number]):
            response.send_keepalive_if_quiet()


class EventResponse:
    """The response to one HTTP request: JSON, or a stream of events once it has sent one.

    Events wait for the reader, one at a time. A quiet stream gets comments, and so does a call
    that is quiet before its answer: it becomes a stream.
    """

    def __init__(
        self,
        writer: ResponseWriter,
        keepalive: Keepalive,
        *,
        prime: Callable[[], bytes] | None = None,
    ) -> None:
        self._writer = writer
        self._prime = prime
        self._lock = asyncio.Lock()
        self._slot = keepalive.add(self)
        self._quiet = False
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when closed."""
        self.opened = False
        """True once this is a stream of events."""
        self.ended = False
        self.closed = False
        """True when nothing more will be sent."""
        self.abandoned = False
        writer.call = self

    def open(self) -> None:
        """Become a stream of events."""
        if not self.opened and not self.closed:
            self.opened = True
            self._writer.begin_stream(EVENT_STREAM)
            if self._prime is not None:
                self._write(self._prime())

    async def event(self, frame: bytes) -> bool:
        """Write one event; return False if that failed."""
        async with self._lock:
            await self._wait_writable()
            if self.closed:
                return False
            self.open()
            self._write(frame)
            return True

    async def answer(self, body: bytes, status: int = 200, id: str = "") -> None:
        """Write the answer and end: as an event if this is a stream, else as JSON."""
        if self.opened or self._lock.locked():
            async with self._lock:
                await self._wait_writable()
                if self.opened:
                    self._end(event(body, id))
                    return
        if not self.ended:
            self.ended = True
            self._writer.answer(status, (body,))
            self.close()

    async def end(self, *, prime: bool = True) -> None:
        """End the stream; the priming event may still let the client resume it."""
        async with self._lock:
            if not prime:
                self._prime = None
            await self._wait_writable()
            self.open()
            self._end()

    def abandon(self) -> None:
        """Stop waiting for this reader: another response carries the stream now."""
        self.abandoned = True
        self.close()

    def on_disconnect(self) -> None:
        """Send nothing more: the client disconnected."""
        self.ended = True
        self.close()

    def close(self) -> None:
        """Send nothing more."""
        self.closed = True
        self._slot.discard(self)
        if not self.over.done():
            self.over.set_result(None)

    def send_keepalive_if_quiet(self) -> None:
        """Send a comment if nothing was sent since the last tick."""
        if self._quiet:
            self.send_keepalive()
        self._quiet = not self._quiet

    def send_keepalive(self) -> None:
        """Write a comment, unless an event waits for the reader."""
        if not self.closed and not self._lock.locked() and not self._writer.is_slow:
            self.open()
            self._write(COMMENT)

    async def _wait_writable(self) -> None:
        """Wait while the reader is slow and this is not closed."""
        if self._writer.is_slow and not self.closed:
            waiting = asyncio.ensure_future(self._writer.wait_writable())
            await asyncio.wait((waiting, self.over), return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()

    def _write(self, data: bytes) -> None:
        self._quiet = False
        self._writer.send_chunk(data)

    def _end(self, last: bytes = b"") -> None:
        """Write the last chunk, which may also end an abandoned response."""
        if not self.ended:
            self.ended = True
            if not self.opened:
                self.opened = True
                self._writer.begin_stream(EVENT_STREAM)
            self._writer.send_chunk(last, last=True)
            self.close()
