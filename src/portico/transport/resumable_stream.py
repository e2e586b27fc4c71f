"""A legacy event stream that outlives the HTTP responses that carry it."""

import asyncio
from collections import deque
from collections.abc import Callable

from portico.transport.events import EventResponse, event, priming_event
from portico.transport.http_limits import HttpLimits


class ResumableStream:
    """Numbered events, the newest of which are kept for a client that comes back.

    While a response carries the stream, whoever speaks waits for its reader. While none does, the
    stream goes on, the oldest events fall out, and the answer waits (resumability and redelivery).
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
        """True for a GET stream, which is there for unsolicited notifications."""
        self.size = 0
        """Bytes kept."""
        self._limits = limits
        self._on_size_change = on_size_change
        self._events: deque[tuple[int, bytes]] = deque()
        self._number = 0
        self._sent = 0
        self._lock = asyncio.Lock()
        self._has_event_id = False  # has the client an id of ours, so that it can come back?
        self._dropped = False
        self._answer = b""  # one that nobody could come back for, so it is not among the events
        self._status = 200
        self.prime = (lambda: priming_event(f"{key}-0", limits.retry_ms)) if primes else None
        """The first event of a response that carries it from its start, where clients know it."""
        self.response: EventResponse | None = None
        """The response that carries it now."""
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when there will be no more events."""

    async def send(self, message: bytes) -> None:
        """Add an event; waits for the reader if there is one."""
        async with self._lock:
            if not self.over.done():
                self._store(message)
                await self._flush()

    def complete(self, answer: bytes = b"", status: int = 200) -> None:
        """The answer is there, or none will come; whoever carries us ends its response next."""
        if self.over.done():
            return
        if answer and self.can_resume:
            self._store(answer)
        else:
            self._answer, self._status = answer, status
        self.over.set_result(None)

    @property
    def can_resume(self) -> bool:
        """True if the client may have an id of ours, without which it cannot come back."""
        return self._has_event_id or (self.response is not None and self.response.opened)

    @property
    def is_idle(self) -> bool:
        """True if it is kept only for a client that might come back."""
        return self.response is None and (self.listens or self.over.done())

    def begin(self, response: EventResponse, known: bool) -> None:
        """Let this response carry a new stream, which has nothing to say yet; `known` if the
        client is told first that there is one."""
        self.response = response
        self._has_event_id = known

    async def carry(self, response: EventResponse, after: int = 0) -> None:
        """Let this response carry the stream from now on, beginning after that event."""
        if self.response is not None:
            self.response.abandon()
        self.response, self._sent = response, after
        async with self._lock:
            await self._flush()

    async def finish(self, response: EventResponse) -> None:
        """End the response that carries us, once the stream is over."""
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
        """This response carries us no longer; the stream goes on without."""
        if self.response is response:
            self._has_event_id = self._has_event_id or response.opened
            self.response = None

    def drop(self) -> None:
        """Keep nothing any more: there is no room."""
        self._dropped = True
        self._events.clear()
        self.size = 0

    async def _flush(self) -> None:
        """Write what the reader has not got."""
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
    """The stream and number that an event id of ours names."""
    key, dash, number = id.decode("ascii", "replace").rpartition("-")
    return (key, int(number)) if dash and number.isdecimal() and len(number) < 19 else None
