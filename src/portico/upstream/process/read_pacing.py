"""Limits how much of a server's output is handled in one turn of the event loop.

All other clients wait for that turn. A flood of small messages costs a hundred times as much per
byte as one large result, so a slice is measured in time, and the number of bytes follows from it.
"""

import asyncio
from collections.abc import Callable
from time import perf_counter

SLICE_S = 0.000_25
"""About how long one server may occupy the loop in one turn."""
MIN_READ, MAX_READ = 1024, 64 * 1024
MAX_BUSY_SLICES = 40
"""Full slices in a row before reading pauses between them."""
_MIN_REST_S = 0.002
"""The shortest pause. Event loops round down to milliseconds, perhaps to zero."""
_MAX_REST_S = 0.05
"""The longest pause: the final output of an exited process is not awaited much longer."""

Handle = Callable[[bytes], object]
"""Handles the data; returns true if any of it was awaited."""


class SliceBudget:
    """Counts full slices; a flood of them has to pause between two."""

    __slots__ = ("_used_up",)

    def __init__(self) -> None:
        self._used_up = 0

    def rest_s(self, took_s: float, is_awaited: bool = False) -> float:
        """Return how long to pause after a slice; zero for bursts and for awaited data."""
        if took_s < SLICE_S / 2:
            self._used_up = max(0, self._used_up - 1)
            return 0.0
        self._used_up = min(MAX_BUSY_SLICES, self._used_up + 1)
        return (
            0.0
            if is_awaited or self._used_up < MAX_BUSY_SLICES
            else min(max(took_s, _MIN_REST_S), _MAX_REST_S)
        )


class ReadPacing:
    """Adapts the number of bytes per read, so that handling them fills a slice."""

    __slots__ = ("_budget", "_spent_s", "size")

    def __init__(self) -> None:
        self.size = MIN_READ
        self._spent_s = 0.0
        self._budget = SliceBudget()

    def take(self, data: bytes, handle: Handle) -> float:
        """Handle up to `size` bytes; return how long to pause before the next read."""
        if len(data) < MIN_READ:
            handle(data)
            return 0.0
        began = perf_counter()
        is_awaited = bool(handle(data))
        took_s = perf_counter() - began
        self._spent_s += took_s
        self.size = max(MIN_READ, min(MAX_READ, int(len(data) * SLICE_S / (took_s or SLICE_S))))
        return self._budget.rest_s(took_s, is_awaited)

    async def handle_in_slices(self, data: bytes, handle: Handle) -> None:
        """Handle data that was read already, one slice per turn."""
        at = 0
        while at < len(data):
            piece = data[at : at + self.size]
            at += len(piece)
            rest_s = self.take(piece, handle)
            if self._spent_s > SLICE_S or rest_s:
                self._spent_s = 0.0
                await asyncio.sleep(rest_s)
