"""How long a run takes: the real one, or a quick look whether everything works."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """Rounds, durations and counts."""

    rounds: int
    start_rounds: int
    web_seconds: int
    lists: int
    calls: int
    flat_lists: int
    flat_calls: int
    part_seconds: float


FULL = Scale(
    rounds=5,
    start_rounds=11,
    web_seconds=1,
    lists=2_000,
    calls=3_000,
    flat_lists=1_000_000,
    flat_calls=100_000,
    part_seconds=0.2,
)
QUICK = Scale(
    rounds=1,
    start_rounds=3,
    web_seconds=1,
    lists=300,
    calls=300,
    flat_lists=20_000,
    flat_calls=5_000,
    part_seconds=0.02,
)
