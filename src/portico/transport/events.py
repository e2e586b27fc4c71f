"""SSE events, their keepalive, and a response that becomes a stream when it needs one."""

import asyncio
import contextlib
from collections.abc import Callable
from itertools import cycle
from typing import Protocol

from portico.protocol.line_reader import one_line
from portico.transport.asgi import JSON_TYPE, Headers, Message, Send

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

    def send_keepalive_if_quiet(self, loop: asyncio.AbstractEventLoop) -> None:
        """Send a comment if nothing was sent since the last tick."""
        ...


class Keepalive:
    """Keeps the quiet streams of one app alive, with one timer for all of them.

    It checks each stream twice in `quiet_s`, one slot at a time, so that ten thousand quiet
    streams do not all need the event loop at once.
    """

    def __init__(self, quiet_s: float) -> None:
        self._step_s = quiet_s / 2 / _SLOTS
        self._slots: tuple[set[KeptAlive], ...] = tuple(set() for _ in range(_SLOTS))
        self.slots = cycle(self._slots)
        """The next of these is the slot for a new response; then the timer must be running."""
        self.timer: asyncio.TimerHandle | None = None

    def add(self, response: KeptAlive) -> set[KeptAlive]:
        """Keep a response alive until it is removed from the set that this returns."""
        slot = next(self.slots)
        slot.add(response)
        if self.timer is None:
            self.start_timer()
        return slot

    def start_timer(self) -> None:
        """Start the timer."""
        loop = asyncio.get_running_loop()
        self.timer = loop.call_later(self._step_s, self._tick, loop, 0)

    def _tick(self, loop: asyncio.AbstractEventLoop, number: int) -> None:
        self.timer = None
        if any(self._slots):  # set first: a failure below must not stop the timer
            next_slot = (number + 1) % _SLOTS
            self.timer = loop.call_later(self._step_s, self._tick, loop, next_slot)
        for response in tuple(self._slots[number]):
            response.send_keepalive_if_quiet(loop)


class EventResponse:
    """The response to one HTTP request: JSON, or a stream of events once it has sent one.

    Writes wait for the reader (ASGI's `send`), one at a time. A quiet stream gets comments, and so
    does a call that is quiet before its answer: it becomes a stream.
    """

    def __init__(
        self,
        send: Send,
        keepalive: Keepalive,
        *,
        prime: Callable[[], bytes] | None = None,
        can_be_abandoned: bool = False,
    ) -> None:
        self._send = send
        self._prime = prime
        self._lock = asyncio.Lock()
        self._slot = keepalive.add(self)
        self._quiet = False
        self._comment: asyncio.Task[None] | None = None
        self._can_be_abandoned = can_be_abandoned
        self._writing: asyncio.Timeout | None = None
        self._over: asyncio.Future[None] | None = None
        self.opened = False
        """True once this is a stream of events."""
        self.ended = False
        self.closed = False
        """True when nothing more will be sent."""
        self.abandoned = False

    @property
    def over(self) -> "asyncio.Future[None]":
        """Done when closed."""
        if self._over is None:
            self._over = asyncio.get_running_loop().create_future()
            if self.closed:
                self._over.set_result(None)
        return self._over

    async def open(self) -> None:
        """Become a stream of events."""
        async with self._lock:
            if not self.closed:
                await self._open()

    async def event(self, frame: bytes) -> bool:
        """Write one event; return False if that failed."""
        async with self._lock:
            return not self.closed and await self._open() and await self._write(frame)

    async def answer(self, body: bytes, status: int = 200, id: str = "") -> None:
        """Write the answer and end: as an event if this is a stream, else as JSON."""
        if self.opened or self._lock.locked():
            async with self._lock:
                if self.opened:
                    await self._write(event(body, id), last=True)
                    return
        if self.ended:
            return
        self.ended = True
        self.close()
        headers = [JSON_TYPE, (b"content-length", b"%d" % len(body))]
        with contextlib.suppress(OSError):  # the client disconnected (ASGI 2.4)
            await self._send({"type": "http.response.start", "status": status, "headers": headers})
            await self._send({"type": "http.response.body", "body": body})

    async def end(self, *, prime: bool = True) -> None:
        """End the stream; the priming event may still let the client resume it."""
        async with self._lock:
            if not prime:
                self._prime = None
            if not self.ended and await self._open():
                await self._write(b"", last=True)

    def abandon(self) -> None:
        """Stop waiting for this reader: another response carries the stream now."""
        self.abandoned = True
        self.close()
        if self._writing is not None:
            self._writing.reschedule(asyncio.get_running_loop().time())

    def close(self) -> None:
        """Send nothing more."""
        self.closed = True
        self._slot.discard(self)
        if self._over is not None and not self._over.done():
            self._over.set_result(None)

    def send_keepalive_if_quiet(self, loop: asyncio.AbstractEventLoop) -> None:
        """Send a comment if nothing was sent since the last tick."""
        if self._quiet:
            self.send_keepalive(loop)
        self._quiet = not self._quiet

    def send_keepalive(self, loop: asyncio.AbstractEventLoop) -> None:
        """Write a comment, unless something is being written."""
        if not self._lock.locked():
            self._comment = loop.create_task(self._send_comment())

    async def _open(self) -> bool:
        if not self.opened:
            headers = list(EVENT_STREAM)
            await self._put({"type": "http.response.start", "status": 200, "headers": headers})
            self.opened = True
            if self._prime is not None:
                return await self._write(self._prime())
        return True

    async def _write(self, data: bytes, *, last: bool = False) -> bool:
        """Write if this is still open; the last write may also end an abandoned response."""
        if self.ended or (self.closed and not last):
            return False
        self.ended = last
        self._quiet = False
        written = await self._put(
            {"type": "http.response.body", "body": data, "more_body": not last}
        )
        if last:
            self.close()
        return written

    async def _put(self, message: Message) -> bool:
        try:
            if not self._can_be_abandoned:
                await self._send(message)
                return True
            async with asyncio.timeout(None) as self._writing:
                await self._send(message)
        except TimeoutError:
            return False  # abandoned
        except OSError:
            return False  # the client disconnected (ASGI 2.4)
        finally:
            self._writing = None
        return True

    async def _send_comment(self) -> None:
        async with self._lock:
            if not self.closed and await self._open():
                await self._write(COMMENT)
