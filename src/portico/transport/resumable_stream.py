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
        kept: Callable[[], None],
    ) -> None:
        self.key = key
        self.listens = listens
        """True for a GET stream, which is there for unsolicited notifications."""
        self.size = 0
        """Bytes kept."""
        self._limits = limits
        self._kept = kept
        self._events: deque[tuple[int, bytes]] = deque()
        self._number = 0
        self._sent = 0
        self._lock = asyncio.Lock()
        self._known = False  # has the client an id of ours, so that it can come back?
        self._dropped = False
        self._answer = b""  # one that nobody could come back for, so it is not among the events
        self._status = 200
        self.prime = (lambda: priming_event(f"{key}-0", limits.retry_ms)) if primes else None
        """The first event of a response that carries it from its start, where clients know it."""
        self.exchange: EventResponse | None = None
        """The response that carries it now."""
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when there will be no more events."""

    async def say(self, message: bytes) -> None:
        """Add an event; waits for the reader if there is one."""
        async with self._lock:
            if not self.over.done():
                self._keep(message)
                await self._flush()

    def complete(self, answer: bytes = b"", status: int = 200) -> None:
        """The answer is there, or none will come; whoever carries us ends its response next."""
        if self.over.done():
            return
        if answer and self.can_resume:
            self._keep(answer)
        else:
            self._answer, self._status = answer, status
        self.over.set_result(None)

    @property
    def can_resume(self) -> bool:
        """True if the client may have an id of ours, without which it cannot come back."""
        return self._known or (self.exchange is not None and self.exchange.opened)

    @property
    def is_idle(self) -> bool:
        """True if it is kept only for a client that might come back."""
        return self.exchange is None and (self.listens or self.over.done())

    def begin(self, exchange: EventResponse, known: bool) -> None:
        """Let this response carry a new stream, which has nothing to say yet; `known` if the
        client is told first that there is one."""
        self.exchange = exchange
        self._known = known

    async def carry(self, exchange: EventResponse, after: int = 0) -> None:
        """Let this response carry the stream from now on, beginning after that event."""
        if self.exchange is not None:
            self.exchange.abandon()
        self.exchange, self._sent = exchange, after
        async with self._lock:
            await self._flush()

    async def finish(self, exchange: EventResponse) -> None:
        """End the response that carries us, once the stream is over."""
        async with self._lock:
            await self._flush()
            if self.exchange is not exchange:
                return
            answer, self._answer = self._answer, b""
            if answer:
                await exchange.answer(answer, self._status, f"{self.key}-{self._number + 1}")
            else:
                await exchange.end(prime=False)

    def detach(self, exchange: EventResponse) -> None:
        """This response carries us no longer; the stream goes on without."""
        if self.exchange is exchange:
            self._known = self._known or exchange.opened
            self.exchange = None

    def drop(self) -> None:
        """Keep nothing any more: there is no room."""
        self._dropped = True
        self._events.clear()
        self.size = 0

    async def _flush(self) -> None:
        """Write what the reader has not got."""
        exchange = self.exchange
        if exchange is None:
            return
        unsent = min(self._number - self._sent, len(self._events))
        for number, frame in [self._events[at] for at in range(-unsent, 0)]:
            if not await exchange.event(frame) or self.exchange is not exchange:
                return
            self._sent = number

    def _keep(self, message: bytes) -> None:
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
        self._kept()


def parse_event_id(id: bytes) -> tuple[str, int] | None:
    """The stream and number that an event id of ours names."""
    key, dash, number = id.decode("ascii", "replace").rpartition("-")
    return (key, int(number)) if dash and number.isdecimal() and len(number) < 19 else None
