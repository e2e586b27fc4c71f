"""When to try a failing upstream again: a growing pause after each failed start, and a breaker."""

import os
from collections.abc import Callable

from msgspec import Struct

from portico.model.errors import TargetError


class BackoffLimits(Struct, frozen=True):
    """How a failing upstream is dealt with."""

    first_pause_s: float = 0.5
    max_pause_s: float = 30.0
    failures: int = 5
    """So many failures in a row open the breaker."""
    open_s: float = 15.0
    """How long it then stays open, before one call may try."""
    wait_s: float = 1.0
    """A call waits out a pause of at most so long; before a longer one it fails at once."""


class Backoff:
    """The pause before the next start: none after the first failure, then longer and longer."""

    def __init__(self, backoff: BackoffLimits, clock: Callable[[], float]) -> None:
        self._limits = backoff
        self._clock = clock
        self.failures = 0
        """How many there were in a row."""
        self._until = 0.0

    @property
    def remaining_s(self) -> float:
        """How long to wait still."""
        return max(0.0, self._until - self._clock())

    def failed(self) -> None:
        """It could not start, or died young."""
        self.failures += 1
        if self.failures > 1:
            longest = self._limits.first_pause_s * 2 ** min(self.failures - 2, 16)
            # Jitter, so that many who failed together do not come back together.
            spread = 0.5 + os.urandom(1)[0] / 510
            self._until = self._clock() + min(longest, self._limits.max_pause_s) * spread

    def succeeded(self) -> None:
        """It works."""
        self.failures = 0
        self._until = 0.0


class CircuitBreaker:
    """Opens after repeated failures, so that nobody waits for what will fail again."""

    def __init__(self, server: str, backoff: BackoffLimits, clock: Callable[[], float]) -> None:
        self._server = server
        self._limits = backoff
        self._clock = clock
        self.failures = 0
        """How many there were in a row."""
        self._opened = 0.0
        self._has_trial = False
        self.why = ""
        """What it did the last time it failed, such as `exited with code 1`."""

    @property
    def is_open(self) -> bool:
        """True while calls fail at once."""
        return self.failures >= self._limits.failures

    def check(self) -> bool:
        """Let a call pass, or raise TargetError; when the time is up one may try: True for that."""
        if not self.is_open:
            return False
        left = self._opened + self._limits.open_s - self._clock()
        if left <= 0 and not self._has_trial:
            self._has_trial = True
            return True
        raise TargetError(
            f"{self._server} failed {self.failures} times in a row: it {self.why}; "
            f"try again in {max(left, 0):.0f} s",
            kind="breaker",
            server=self._server,
            retry_after_s=round(max(left, 0), 1),
        )

    def failed(self, why: str) -> None:
        """It died, could not start, or did not answer in time."""
        self.failures += 1
        self.why = why.removeprefix(f"{self._server} ")
        self._has_trial = False
        if self.is_open:
            self._opened = self._clock()

    def call_failed(self, error: TargetError, before: int) -> None:
        """A call failed that began after so many failures in a row.

        That counts if its connection lives on, so that nobody else tells us, and if no other
        failure was counted meanwhile: calls that hang at the same time have failed once.
        """
        is_server_fault = (
            error.kind in ("timeout", "network") or error.details.get("status", 0) >= 500
        )
        if is_server_fault and self.failures == before:
            self.failed(str(error))

    def succeeded(self) -> None:
        """It answered."""
        self.failures = 0
        self._has_trial = False

    def cancel_trial(self) -> None:
        """The call that was to try ended without saying anything of the upstream."""
        self._has_trial = False
