"""Measures the parts of a turn."""

from collections.abc import Callable

from portico.agents.turns.delegation import TurnTimings


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
