"""When to retry a failing upstream: a growing pause after each failed start, and a breaker."""

import os
from collections.abc import Callable

from msgspec import Struct

from portico.core.model.errors import TargetError


class BackoffLimits(Struct, frozen=True):
    """The limits for a failing upstream."""

    first_pause_s: float = 0.5
    max_pause_s: float = 30.0
    failures: int = 5
    """The number of consecutive failures that opens the breaker."""
    open_s: float = 15.0
    """How long the breaker stays open before it lets one trial call through."""
    wait_s: float = 1.0
    """The longest pause that a call waits out; with a longer one it fails at once."""


def jittered(limits: BackoffLimits, failures: int) -> float:
    """Return the pause after this many failures: doubled each time, and with jitter, so that
    upstreams that failed together do not restart together."""
    longest: float = limits.first_pause_s * 2 ** min(failures, 16)
    return min(longest, limits.max_pause_s) * (0.5 + os.urandom(1)[0] / 510)


class Backoff:
    """The pause before the next start: none after the first failure, then doubled each time."""

    def __init__(self, backoff: BackoffLimits, clock: Callable[[], float]) -> None:
        self._limits = backoff
        self._clock = clock
        self.failures = 0
        """The number of consecutive failures."""
        self._until = 0.0

    @property
    def remaining_s(self) -> float:
        """The rest of the pause."""
        return max(0.0, self._until - self._clock())

    def failed(self) -> None:
        """Record a failed start or a lost session."""
        self.failures += 1
        if self.failures > 1:
            self._until = self._clock() + jittered(self._limits, self.failures - 2)

    def succeeded(self) -> None:
        """Record a success."""
        self.failures = 0
        self._until = 0.0


class CircuitBreaker:
    """Opens after repeated failures, so that calls fail at once instead of waiting."""

    def __init__(self, server: str, backoff: BackoffLimits, clock: Callable[[], float]) -> None:
        self._server = server
        self._limits = backoff
        self._clock = clock
        self.failures = 0
        """The number of consecutive failures."""
        self._opened = 0.0
        self._has_trial = False
        self.why = ""
        """The last failure, such as `exited with code 1`."""

    @property
    def is_open(self) -> bool:
        """True while calls fail at once."""
        return self.failures >= self._limits.failures

    def check(self) -> bool:
        """Let a call pass or raise TargetError; True for the trial call after the open time."""
        if not self.is_open:
            return False
        left = self._opened + self._limits.open_s - self._clock()
        if left <= 0 and not self._has_trial:
            self._has_trial = True
            return True
        raise TargetError(
            f"{self._server} failed {self.failures} times in a row; "
            f"try again in {max(left, 0):.0f} s; last failure: {self.why}",
            kind="breaker",
            server=self._server,
            retry_after_s=round(max(left, 0), 1),
        )

    def failed(self, why: str) -> None:
        """Record that the upstream exited, failed to start or timed out."""
        self.failures += 1
        self.why = why.removeprefix(f"{self._server} ")
        self._has_trial = False
        if self.is_open:
            self._opened = self._clock()

    def call_failed(self, error: TargetError, before: int) -> None:
        """Record a failed call that began after `before` consecutive failures.

        It counts only if its connection is still open, since a lost one is recorded elsewhere, and
        if no other failure was recorded meanwhile: calls that hang together count once.
        """
        is_server_fault = (
            error.kind in ("timeout", "network") or error.details.get("status", 0) >= 500
        )
        if is_server_fault and self.failures == before:
            self.failed(str(error))

    def succeeded(self) -> None:
        """Record a response."""
        self.failures = 0
        self._has_trial = False

    def cancel_trial(self) -> None:
        """Allow another trial: the last one ended without a result."""
        self._has_trial = False
