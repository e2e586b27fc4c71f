"""Combinations of test parameters: every pair in `make test`, every combination in `make soak`.

Most faults that depend on parameters depend on two of them (a transport and an era, a peer and a
link), so a test that starts processes runs once for each pair instead of once for each combination.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import combinations, product
from typing import Any

from tests.support.soak import IS_SOAK

Pair = tuple[tuple[int, int], ...]


def pairs(*axes: Sequence[Any], all: bool = IS_SOAK) -> list[tuple[Any, ...]]:
    """Combinations of one value of each axis that hold each pair of values at least once."""
    every = list(product(*(range(len(axis)) for axis in axes)))
    chosen = every if all or len(axes) < 3 else _covering(every)
    return [tuple(axis[at] for axis, at in zip(axes, one, strict=True)) for one in chosen]


def _covering(every: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Choose greedily: each time the combination with the most pairs that are missing, and of
    equals the one whose pairs were chosen least, so that no pair of values stays with one third."""
    missing = {pair for one in every for pair in _pairs(one)}
    counts: Counter[Pair] = Counter()
    chosen = []
    while missing:
        best = max(every, key=lambda one: (len(missing & _pairs(one)), -_times(counts, one)))
        missing -= _pairs(best)
        counts.update(_pairs(best))
        chosen.append(best)
    return sorted(chosen)


def _times(counts: Counter[Pair], one: tuple[int, ...]) -> int:
    return sum(counts[pair] for pair in _pairs(one))


def _pairs(one: tuple[int, ...]) -> set[Pair]:
    """The pairs in a combination, each value with the number of its axis."""
    return set(combinations(enumerate(one), 2))
