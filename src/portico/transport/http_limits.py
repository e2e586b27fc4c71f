"""How much one client, and all of them together, may ask of the HTTP edge."""

import asyncio
from typing import Protocol

from msgspec import Struct


class HttpLimits(Struct, frozen=True, kw_only=True):
    """Bounds with sensible defaults; each can be set."""

    body_bytes: int = 4 * 1024 * 1024
    body_s: float = 30.0
    """A request's body must be there within so long of its headers."""
    bodies_bytes: int = 160 * 1024 * 1024
    """Bodies of all requests together, each until its answer is sent."""
    unread_bytes: int = 256 * 1024 * 1024
    """Responses that wait for slow readers, all together."""
    connections: int = 10_000
    half_open: int = 500
    """Connections whose client owes the rest of its first headers."""
    header_bytes: int = 32 * 1024
    header_count: int = 100
    header_s: float = 10.0
    """A request's headers must be there within so long of its first byte, or of connecting."""
    keep_alive_s: float = 75.0
    """An idle connection is closed after so long."""
    stall_s: float = 60.0
    """A reader that takes nothing for so long while we have something to say is gone."""
    quiet_s: float = 15.0
    """A stream that is quiet for so long gets a comment, so that nobody on the way closes it."""
    running: int = 1000
    """Calls at work at once; more are told to come back."""
    streams: int = 10_000
    """Listen, GET and old SSE streams open at once."""
    sessions: int = 10_000
    session_idle_s: float = 30 * 60.0
    session_streams: int = 128
    """Streams and calls at work at once in one legacy session."""
    notices: int = 256
    """Unsolicited notifications that wait for one session's reader."""
    replay_events: int = 256
    """Events kept of one legacy stream for a client that comes back."""
    replay_bytes: int = 1024 * 1024
    session_replay_bytes: int = 4 * 1024 * 1024
    """The same for all streams of one session together."""
    all_replay_bytes: int = 128 * 1024 * 1024
    """The same for all sessions together."""
    retry_ms: int = 1000
    """How soon a legacy client may come back to a stream that we closed (SSE `retry`)."""


class Cancellable(Protocol):
    """A call, or the task it runs in."""

    def cancel(self) -> object:
        """Stop it."""
        ...


class HttpLoad:
    """What is under way in one app: counted, so that it can be capped and waited for."""

    def __init__(self, limits: HttpLimits) -> None:
        self._limits = limits
        self.max_calls = limits.running
        self.calls = 0
        """How many are running; to begin and end one quickly, count it here and `look`."""
        self._streams = 0
        self.idle_event: asyncio.Event | None = None
        """Set when nothing is under way any more, if somebody waits for that."""
        self.has_notice = False
        """True from the notice of a stop on: not ready, and still serving."""
        self.draining = False
        self.drain_began = asyncio.Event()
        self.timed_out = False
        """True once a drain has run out of time: what is cancelled now was stopped by us."""
        self.tasks: set[Cancellable] = set()
        """The modern calls, each of its own HTTP request."""

    def begin_call(self) -> bool:
        """Count one more call; False if there are too many."""
        if self.calls >= self.max_calls:
            return False
        self.calls += 1
        return True

    def end_call(self) -> None:
        """One call less."""
        self.calls -= 1
        if self.idle_event is not None:
            self.notify_if_idle()

    def begin_stream(self) -> bool:
        """Count one more open-ended stream; False if there are too many."""
        if self._streams >= self._limits.streams:
            return False
        self._streams += 1
        return True

    def end_stream(self) -> None:
        """One stream less."""
        self._streams -= 1
        self.notify_if_idle()

    def reopen(self) -> None:
        """Take work again, on the event loop of now: another lifespan begins."""
        self.has_notice = self.draining = self.timed_out = False
        self.drain_began = asyncio.Event()
        self.idle_event = None

    def begin_drain(self) -> None:
        """From now on no new work is taken, and whoever waits for it is told."""
        self.has_notice = self.draining = True
        self.drain_began.set()

    async def wait_idle(self, within_s: float) -> bool:
        """Wait until nothing is under way; False if that took too long."""
        if not self.calls and not self._streams:
            return True
        idle_event = self.idle_event = self.idle_event or asyncio.Event()
        try:
            await asyncio.wait_for(idle_event.wait(), within_s)
        except TimeoutError:
            return False
        return True

    def notify_if_idle(self) -> None:
        """Tell who waits for it if nothing is under way any more."""
        if self.idle_event is not None and not self.calls and not self._streams:
            self.idle_event.set()
            self.idle_event = None
