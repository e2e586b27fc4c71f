"""The idle and the hard timeout of a turn."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from portico.agents.turns.delegation import TurnTimings

IDLE, HARD = "idle_timeout", "hard_timeout"


class TurnClock:
    """Calls `expired` once, with the timeout that has passed."""

    def __init__(self, idle_s: float, hard_s: float, expired: Callable[[str], None]) -> None:
        self._idle_s = idle_s
        self._expired = expired
        self._loop = asyncio.get_running_loop()
        self._last = self._loop.time()
        self._pauses = 0
        self._idle = self._loop.call_later(idle_s, self._check)
        self._hard = self._loop.call_later(hard_s, self._expire, HARD)

    def touch(self) -> None:
        """The agent has done something: the idle timeout begins again."""
        # The timer itself stays, and looks at this when it fires: updates come in floods.
        self._last = self._loop.time()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Suspend the idle timeout, while a question waits for its answer."""
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1
            self.touch()

    def stop(self) -> None:
        """End both timeouts."""
        self._idle.cancel()
        self._hard.cancel()

    def _check(self) -> None:
        since = self._loop.time() - self._last
        if self._pauses:
            left = self._idle_s
        else:
            left = self._idle_s - since
        if left <= 0:
            self._expire(IDLE)
        else:
            self._idle = self._loop.call_later(left, self._check)

    def _expire(self, which: str) -> None:
        self.stop()
        self._expired(which)


class TurnStopwatch:
    """Takes the time of each event of a turn; it begins with its creation."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._began = now()
        self._ready_at: float | None = None
        self._updated_at: float | None = None
        self._ended_at: float | None = None

    @property
    def elapsed_s(self) -> float:
        """The time since the beginning."""
        return self._now() - self._began

    def ready(self) -> None:
        """The prompt is sent."""
        self._ready_at = self._now()

    def updated(self) -> None:
        """An update arrived."""
        if self._updated_at is None and self._ready_at is not None:
            self._updated_at = self._now()

    def ended(self) -> None:
        """The turn has ended."""
        self._ended_at = self._now()

    def timings(self, is_warm: bool = False) -> TurnTimings:
        """Return the parts so far."""
        ready = self._ready_at
        if ready is None:
            return TurnTimings(is_warm=is_warm)
        return TurnTimings(
            start_s=ready - self._began,
            first_update_s=None if self._updated_at is None else self._updated_at - ready,
            turn_s=None if self._ended_at is None else self._ended_at - ready,
            is_warm=is_warm,
        )
