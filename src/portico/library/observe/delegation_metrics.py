"""Counters of the tasks that were delegated to agents."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping

from msgspec import Struct

from portico.library.observe.metrics import Histogram

BUCKETS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)


class DelegationNote(Struct, frozen=True, kw_only=True):
    """The end of one delegated task. None is unknown."""

    agent: str
    outcome: str
    seconds: Mapping[str, float | None] = {}
    """By stage (queue, start, first_update, turn), how long it took."""
    permissions: Mapping[str, int] = {}
    """By decision, the permission requests."""
    tokens: int | None = None
    cost: float | None = None
    currency: str = ""


class DelegationMetrics:
    """Counters of all agents of one gateway, since it started."""

    def __init__(self) -> None:
        self.tasks: Counter[tuple[str, str]] = Counter()
        """By agent and outcome."""
        self.permissions: Counter[tuple[str, str]] = Counter()
        """By agent and decision."""
        self.tokens: Counter[str] = Counter()
        self.cost: dict[tuple[str, str], float] = {}
        """By agent and currency."""
        self.times: dict[tuple[str, str], Histogram] = {}
        """By agent and stage."""

    def record(self, note: DelegationNote) -> None:
        """Count a finished task."""
        self.tasks[note.agent, note.outcome] += 1
        for decision, count in note.permissions.items():
            self.permissions[note.agent, decision] += count
        if note.tokens is not None:
            self.tokens[note.agent] += note.tokens
        if note.cost is not None:
            key = (note.agent, note.currency)
            self.cost[key] = self.cost.get(key, 0.0) + note.cost
        for stage, took_s in note.seconds.items():
            if took_s is not None:
                times = self.times.setdefault((note.agent, stage), Histogram(BUCKETS))
                times.counts[bisect_left(times.buckets, took_s)] += 1
                times.sum += took_s
