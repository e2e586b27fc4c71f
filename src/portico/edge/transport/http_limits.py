"""The limits of the HTTP transport, and the load that they apply to.

The limits of connections are in `core/http1/server_limits.py`.
"""

import asyncio

from portico.core.http1.server_limits import ServerLimits
from portico.core.state.pending import CancellableWork


class HttpLimits(ServerLimits, frozen=True, kw_only=True):
    """Limits with sensible defaults; each can be set."""

    body_bytes: int = 4 * 1024 * 1024
    bodies_bytes: int = 160 * 1024 * 1024
    """The bodies of all requests together, each until its response is sent."""
    header_count: int = 100
    quiet_s: float = 15.0
    """A stream that is quiet for this long gets a comment, so that proxies keep it open."""
    running: int = 1000
    """Calls running at once; further ones get 503 with Retry-After."""
    streams: int = 10_000
    """Listen, GET and old SSE streams open at once."""
    sessions: int = 10_000
    session_idle_s: float = 30 * 60.0
    session_streams: int = 128
    """Streams and calls at once in one legacy session."""
    notices: int = 256
    """Unsolicited notifications queued for one session's reader."""
    replay_events: int = 256
    """Events kept of one legacy stream for a client that resumes it."""
    replay_bytes: int = 1024 * 1024
    session_replay_bytes: int = 4 * 1024 * 1024
    """The same for all streams of one session together."""
    all_replay_bytes: int = 128 * 1024 * 1024
    """The same for all sessions together."""
    retry_ms: int = 1000
    """When a legacy client may resume a stream that we closed (SSE `retry`)."""


class HttpLoad:
    """The calls and streams open in one app, counted for limits and drains."""

    def __init__(self, limits: HttpLimits) -> None:
        self._limits = limits
        self.calls = 0
        """The number running."""
        self._streams = 0
        self.idle_event: asyncio.Event | None = None
        """Set when no call or stream is left; None unless a drain waits."""
        self.has_notice = False
        """True from the notice of a shutdown on: not ready, and still serving."""
        self.draining = False
        self.drain_began = asyncio.Event()
        self.timed_out = False
        """True once a drain has timed out: calls cancelled from now on get an error."""
        self.tasks: set[CancellableWork] = set()
        """The running modern calls."""

    def begin_call(self) -> bool:
        """Count a new call; return False if there are too many."""
        if self.calls >= self._limits.running:
            return False
        self.calls += 1
        return True

    def end_call(self) -> None:
        """Count a call as ended."""
        self.calls -= 1
        self._notify_if_idle()

    def begin_stream(self) -> bool:
        """Count a new open-ended stream; return False if there are too many."""
        if self._streams >= self._limits.streams:
            return False
        self._streams += 1
        return True

    def end_stream(self) -> None:
        """Count a stream as ended."""
        self._streams -= 1
        self._notify_if_idle()

    def reopen(self) -> None:
        """Accept work again, on the current event loop, for another lifespan."""
        self.has_notice = self.draining = self.timed_out = False
        self.drain_began = asyncio.Event()
        self.idle_event = None

    def begin_drain(self) -> None:
        """Accept no new work, and notify the streams that wait for a drain."""
        self.has_notice = self.draining = True
        self.drain_began.set()

    async def wait_idle(self, within_s: float) -> bool:
        """Wait until no call or stream is open; return False on timeout."""
        if not self.calls and not self._streams:
            return True
        idle_event = self.idle_event = self.idle_event or asyncio.Event()
        try:
            await asyncio.wait_for(idle_event.wait(), within_s)
        except TimeoutError:
            return False
        return True

    def _notify_if_idle(self) -> None:
        """Wake a waiting drain if no call or stream is open."""
        if self.idle_event is not None and not self.calls and not self._streams:
            self.idle_event.set()
            self.idle_event = None
