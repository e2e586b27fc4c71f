"""The memory budget that all connections share."""

from portico.core.http1.memory_budget import SMALL, Allotment, MemoryBudget

MB = 1024 * 1024


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Holders:
    """The holders of one budget, and the names of those dropped."""

    def __init__(self, limit: int) -> None:
        self.clock = Clock()
        self.budget = MemoryBudget(limit, self.clock)
        self.dropped: list[str] = []

    def add(self, name: str, size: int) -> Allotment | None:
        """Return an allotment of this size; None if it is refused."""
        allotment = self.budget.open(lambda: self.dropped.append(name))
        return allotment if self.budget.take(allotment, size) else None


def test_past_the_limit_the_slowest_make_room() -> None:
    holders = Holders(10 * MB)
    for name in ("old", "older than most", "young"):
        holders.add(name, 3 * MB)
        holders.clock.now += 2

    assert holders.add("new", 3 * MB)
    assert holders.dropped == ["old"]
    assert holders.budget.used == 9 * MB


def test_nobody_is_slow_at_once_and_so_the_newest_does_without() -> None:
    holders = Holders(10 * MB)
    for _ in range(3):
        holders.add("quick", 3 * MB)

    assert holders.add("new", 3 * MB) is None
    assert holders.dropped == []


def test_a_small_share_is_never_refused() -> None:
    holders = Holders(10 * MB)
    holders.add("large", 10 * MB)

    assert holders.add("small", SMALL)
    assert holders.dropped == []


def test_those_that_hold_little_are_passed_over() -> None:
    holders = Holders(10 * MB)
    for number in range(100):
        holders.add(f"trickle {number}", 10)
    holders.add("hog", 9 * MB)
    holders.clock.now = 2

    assert holders.add("new", 3 * MB)
    assert holders.dropped == ["hog"]


def test_what_is_at_work_is_not_dropped() -> None:
    holders = Holders(10 * MB)
    working = holders.add("at work", 9 * MB)
    assert working is not None
    working.drop = None
    holders.clock.now = 100

    assert holders.add("new", 3 * MB) is None
    assert holders.dropped == []
    holders.budget.close(working)
    assert holders.add("next", 3 * MB)


def test_what_was_dropped_or_closed_is_given_back_once() -> None:
    holders = Holders(10 * MB)
    allotment = holders.add("slow", 9 * MB)
    assert allotment is not None
    holders.clock.now = 2
    holders.add("new", 5 * MB)
    holders.budget.close(allotment)
    holders.budget.close(allotment)

    assert holders.budget.take(allotment, MB)  # data that it still sends does not count
    assert holders.budget.used == 5 * MB


def test_what_is_there_already_is_trimmed_when_it_is_known_who_is_slow() -> None:
    holders = Holders(10 * MB)
    holders.add("slow", 8 * MB)
    late = holders.budget.open(lambda: holders.dropped.append("late"))
    holders.budget.overdraw(late, 8 * MB)

    assert not holders.budget.trim()
    holders.clock.now = 2
    assert holders.budget.trim()
    assert holders.dropped == ["slow"]
