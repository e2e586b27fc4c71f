"""Tests with a short form for `make test` and a long one for `make soak`."""

import os
from collections.abc import Sequence
from itertools import product
from typing import Any

IS_SOAK = bool(os.environ.get("PORTICO_SOAK"))


def times(short: int, long: int) -> int:
    """The number of rounds: `short` in `make test`, `long` in `make soak`."""
    return long if IS_SOAK else short


def each(*axes: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Combinations of one value of each axis: in `make soak` all, in `make test` as few as hold
    each value."""
    if IS_SOAK:
        return list(product(*axes))
    count = max(len(axis) for axis in axes)
    return [tuple(axis[at % len(axis)] for axis in axes) for at in range(count)]
