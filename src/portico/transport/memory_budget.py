"""Memory that all connections share; past it, those that have held much of it longest go."""

from collections.abc import Callable
from time import monotonic

GRACE_S = 1.0
"""Nobody is slow within this time."""
SMALL = 64 * 1024
"""A share of this size is never refused: the number of connections bounds them."""


class Allotment:
    """What one sender or reader holds."""

    __slots__ = ("drop", "since", "size")

    def __init__(self, since: float, drop: Callable[[], None]) -> None:
        self.since = since
        self.size = 0
        self.drop: Callable[[], None] | None = drop
        """Ends it; None if it is not slow but at work."""


class MemoryBudget:
    """Shares of one bounded amount of memory."""

    def __init__(self, limit: int, clock: Callable[[], float] = monotonic) -> None:
        self._limit = limit
        self._now = clock
        self._allotments: dict[Allotment, None] = {}  # the oldest first
        self.used = 0

    def open(self, drop: Callable[[], None]) -> Allotment:
        """A share of nothing yet."""
        allotment = Allotment(self._now(), drop)
        self._allotments[allotment] = None
        return allotment

    def take(self, allotment: Allotment, size: int) -> bool:
        """Add to a share; False if it has to do without, because nobody else is slow."""
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
        """Add to a share what is there already, whatever the limit."""
        allotment.size += size
        self.used += size

    def close(self, allotment: Allotment) -> None:
        """Give a share back."""
        if allotment in self._allotments:
            del self._allotments[allotment]
            self.used -= allotment.size

    def trim(self) -> bool:
        """Drop slow ones until the rest is within the limit; False if it is not."""
        self._drop_slow(self.used - self._limit, None)
        return self.used <= self._limit

    def _drop_slow(self, over: int, spared: Allotment | None) -> None:
        """Free so many bytes, if slow ones hold them."""
        slow = self._now() - GRACE_S
        while over > 0:
            candidates = [
                allotment
                for allotment in self._allotments
                if allotment.drop is not None and allotment is not spared
            ]
            # Those with little are passed over: to drop them would free nothing.
            minimum = (
                sum(allotment.size for allotment in candidates) / (2 * len(candidates))
                if candidates
                else 0
            )
            oldest = next(
                (
                    allotment
                    for allotment in candidates
                    if allotment.size and allotment.size >= minimum
                ),
                None,
            )
            if oldest is None or oldest.since > slow:
                return
            over -= oldest.size
            self.close(oldest)
            assert oldest.drop is not None
            oldest.drop()
