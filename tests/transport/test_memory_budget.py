"""Memory that all connections share."""

from portico.transport.memory_budget import SMALL, Allotment, MemoryBudget

MB = 1024 * 1024


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Shares:
    """Shares of one budget, and which of them were dropped."""

    def __init__(self, limit: int) -> None:
        self.clock = Clock()
        self.budget = MemoryBudget(limit, self.clock)
        self.dropped: list[str] = []

    def add(self, name: str, size: int) -> Allotment | None:
        """A share of this size; None if it has to do without."""
        share = self.budget.open(lambda: self.dropped.append(name))
        return share if self.budget.take(share, size) else None


def test_past_the_limit_the_slowest_make_room() -> None:
    shares = Shares(10 * MB)
    for name in ("old", "older than most", "young"):
        shares.add(name, 3 * MB)
        shares.clock.now += 2

    assert shares.add("new", 3 * MB)
    assert shares.dropped == ["old"]
    assert shares.budget.used == 9 * MB


def test_nobody_is_slow_at_once_and_so_the_newest_does_without() -> None:
    shares = Shares(10 * MB)
    for _ in range(3):
        shares.add("quick", 3 * MB)

    assert shares.add("new", 3 * MB) is None
    assert shares.dropped == []


def test_a_small_share_is_never_refused() -> None:
    shares = Shares(10 * MB)
    shares.add("large", 10 * MB)

    assert shares.add("small", SMALL)
    assert shares.dropped == []


def test_those_that_hold_little_are_passed_over() -> None:
    shares = Shares(10 * MB)
    for number in range(100):
        shares.add(f"trickle {number}", 10)
    shares.add("hog", 9 * MB)
    shares.clock.now = 2

    assert shares.add("new", 3 * MB)
    assert shares.dropped == ["hog"]


def test_what_is_at_work_is_not_dropped() -> None:
    shares = Shares(10 * MB)
    working = shares.add("at work", 9 * MB)
    assert working is not None
    working.drop = None
    shares.clock.now = 100

    assert shares.add("new", 3 * MB) is None
    assert shares.dropped == []
    shares.budget.close(working)
    assert shares.add("next", 3 * MB)


def test_what_was_dropped_or_closed_is_given_back_once() -> None:
    shares = Shares(10 * MB)
    share = shares.add("slow", 9 * MB)
    assert share is not None
    shares.clock.now = 2
    shares.add("new", 5 * MB)
    shares.budget.close(share)
    shares.budget.close(share)

    assert shares.budget.take(share, MB)  # what it still sends counts no more
    assert shares.budget.used == 5 * MB


def test_what_is_there_already_is_trimmed_when_it_is_known_who_is_slow() -> None:
    shares = Shares(10 * MB)
    shares.add("slow", 8 * MB)
    late = shares.budget.open(lambda: shares.dropped.append("late"))
    shares.budget.overdraw(late, 8 * MB)

    assert not shares.budget.trim()
    shares.clock.now = 2
    assert shares.budget.trim()
    assert shares.dropped == ["slow"]
