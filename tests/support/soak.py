"""Tests with a short form for `make test` and a long one for `make soak`."""

import os

IS_SOAK = bool(os.environ.get("PORTICO_SOAK"))


def times(short: int, long: int) -> int:
    """The number of rounds: `short` in `make test`, `long` in `make soak`."""
    return long if IS_SOAK else short
