"""A legacy event stream that outlives the HTTP responses that carry it."""

import asyncio
from collections import deque
from collections.abc import Callable

from portico.edge.transport.events import EventResponse, event, priming_event
from portico.edge.transport.http_limits import HttpLimits


class ResumableStream:
    """Numbered events, the newest of which are kept for a client that resumes the stream.

    While a response carries the stream, senders wait for its reader. While none does, the stream
    continues, the oldest events are dropped, and the answer waits (resumability and redelivery).
    """

    def __init__(
        self,
        key: str,
        limits: HttpLimits,
        *,
        primes: bool,
        listens: bool,
        on_size_change: Callable[[], None],
    ) -> None:
        self.key = key
        self.listens = listens
        """True for a GET stream, which carries unsolicited notifications."""
        self.size = 0
        """The bytes kept."""
        self._limits = limits
        self._on_size_change = on_size_change
        self._events: deque[tuple[int, bytes]] = deque()
        self._number = 0
        self._sent = 0
        self._lock = asyncio.Lock()
        self._has_event_id = False  # does the client know an event id to resume from?
        self._dropped = False
        self._answer = b""  # kept apart from the events if no client could resume for it
        self._status = 200
        self.prime = (lambda: priming_event(f"{key}-0", limits.retry_ms)) if primes else None
        """Encodes the first event of a new stream, for clients that support it."""
        self.response: EventResponse | None = None
        """The response that carries the stream now."""
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when there will be no more events."""

    async def send(self, message: bytes) -> None:
        """Add an event, and wait for the reader if there is one."""
        async with self._lock:
            if not self.over.done():
                self._store(message)
                await self._flush()

    def complete(self, answer: bytes = b"", status: int = 200) -> None:
        """End the stream, with its answer if any; the response that carries it ends next."""
        if self.over.done():
            return
        if answer and self.can_resume:
            self._store(answer)
        else:
            self._answer, self._status = answer, status
        self.over.set_result(None)

    @property
    def can_resume(self) -> bool:
        """True if the client may know an event id, without which it cannot resume."""
        return self._has_event_id or (self.response is not None and self.response.opened)

    @property
    def is_idle(self) -> bool:
        """True if it is kept only for a client that might resume it."""
        return self.response is None and (self.listens or self.over.done())

    def begin(self, response: EventResponse, known: bool) -> None:
        """Let this response carry a new, empty stream; `known` if it sends an event id first."""
        self.response = response
        self._has_event_id = known

    async def carry(self, response: EventResponse, after: int = 0) -> None:
        """Let this response carry the stream from now on, starting after that event."""
        if self.response is not None:
            self.response.abandon()
        self.response, self._sent = response, after
        async with self._lock:
            await self._flush()

    async def finish(self, response: EventResponse) -> None:
        """End the response that carries the stream, once the stream has ended."""
        async with self._lock:
            await self._flush()
            if self.response is not response:
                return
            answer, self._answer = self._answer, b""
            if answer:
                await response.answer(answer, self._status, f"{self.key}-{self._number + 1}")
            else:
                await response.end(prime=False)

    def detach(self, response: EventResponse) -> None:
        """Continue the stream without this response."""
        if self.response is response:
            self._has_event_id = self._has_event_id or response.opened
            self.response = None

    def drop(self) -> None:
        """Drop all events, and keep no more."""
        self._dropped = True
        self._events.clear()
        self.size = 0

    async def _flush(self) -> None:
        """Write the events that the reader has not received."""
        response = self.response
        if response is None:
            return
        unsent = min(self._number - self._sent, len(self._events))
        for number, frame in [self._events[at] for at in range(-unsent, 0)]:
            if not await response.event(frame) or self.response is not response:
                return
            self._sent = number

    def _store(self, message: bytes) -> None:
        if self._dropped:
            return
        self._number += 1
        frame = event(message, f"{self.key}-{self._number}")
        self._events.append((self._number, frame))
        self.size += len(frame)
        limits = self._limits
        while len(self._events) > 1 and (
            len(self._events) > limits.replay_events or self.size > limits.replay_bytes
        ):
            self.size -= len(self._events.popleft()[1])
        self._on_size_change()


def parse_event_id(id: bytes) -> tuple[str, int] | None:
    """Return the stream and number of an event id; None if it is not ours."""
    key, dash, number = id.decode("ascii", "replace").rpartition("-")
    return (key, int(number)) if dash and number.isdecimal() and len(number) < 19 else None
