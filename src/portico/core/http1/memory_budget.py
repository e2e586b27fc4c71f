"""A memory limit that all connections share; over it, slow holders of much memory are dropped."""

from collections.abc import Callable
from time import monotonic

GRACE_S = 1.0
"""The time within which a holder does not count as slow."""
SMALL = 64 * 1024
"""An allotment up to this size is never refused: the connection limit bounds their sum."""


class Allotment:
    """The memory that one sender or reader holds."""

    __slots__ = ("drop", "since", "size")

    def __init__(self, since: float, drop: Callable[[], None]) -> None:
        self.since = since
        self.size = 0
        self.drop: Callable[[], None] | None = drop
        """Drops the holder; None if it is working, not slow."""


class MemoryBudget:
    """Divides a limited amount of memory into allotments."""

    def __init__(self, limit: int, clock: Callable[[], float] = monotonic) -> None:
        self._limit = limit
        self._now = clock
        self._allotments: dict[Allotment, None] = {}  # the oldest first
        self.used = 0

    def open(self, drop: Callable[[], None]) -> Allotment:
        """Return a new, empty allotment."""
        allotment = Allotment(self._now(), drop)
        self._allotments[allotment] = None
        return allotment

    def take(self, allotment: Allotment, size: int) -> bool:
        """Grow an allotment; return False if the budget is full and no other holder is slow."""
        over = self.used + size - self._limit
        if over > 0:
            self._drop_slow(over, allotment)
            if self.used + size > self._limit and allotment.size + size > SMALL:
                return False
        if allotment in self._allotments:
            allotment.size += size
            self.used += size
        return True

    def overdraw(self, allotment: Allotment, size: int) -> None:
        """Grow an allotment by memory already in use, whatever the limit."""
        allotment.size += size
        self.used += size

    def close(self, allotment: Allotment) -> None:
        """Return an allotment to the budget."""
        if allotment in self._allotments:
            del self._allotments[allotment]
            self.used -= allotment.size

    def trim(self) -> bool:
        """Drop slow holders until the rest is within the limit; return False if it is not."""
        self._drop_slow(self.used - self._limit, None)
        return self.used <= self._limit

    def _drop_slow(self, over: int, spared: Allotment | None) -> None:
        """Free this many bytes, as far as slow holders have them."""
        slow = self._now() - GRACE_S
        while over > 0:
            held = [each for each in self._allotments if each.drop and each is not spared]
            # Small allotments are skipped: dropping them would free little.
            minimum = sum(each.size for each in held) / (2 * len(held)) if held else 0
            oldest = next((each for each in held if each.size and each.size >= minimum), None)
            if oldest is None or oldest.since > slow:
                return
            over -= oldest.size
            self.close(oldest)
            assert oldest.drop is not None
            oldest.drop()
