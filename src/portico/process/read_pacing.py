"""How much of what a server sends is handled in one turn of the event loop.

Everybody else waits for that turn. A flood of small messages costs a hundred times as much per byte
as one large result, so the share is measured in time, and the number of bytes follows from it.
"""

import asyncio
from collections.abc import Callable
from time import perf_counter

SLICE_S = 0.000_25
"""About how long one server may keep the loop in one turn."""
LEAST, MOST = 1024, 64 * 1024
BUSY = 40
"""Slices that may be used up, one after the other, before the server has to rest between them."""
_REST_S = 0.002
"""The shortest rest. Event loops round to milliseconds, down to none at all."""
_MAX_S = 0.05
"""The longest: the last words of a process that has ended are not waited for much longer."""

Handle = Callable[[bytes], object]
"""Takes what was read; true if somebody waited for any of it."""


class Turns:
    """Counts slices that were used up; a flood of them has to rest between two."""

    __slots__ = ("_used_up",)

    def __init__(self) -> None:
        self._used_up = 0

    def rest_s(self, took_s: float, is_wanted: bool = False) -> float:
        """How long to wait after a slice; zero for bursts, and for what somebody waits for."""
        if took_s < SLICE_S / 2:
            self._used_up = max(0, self._used_up - 1)
            return 0.0
        self._used_up = min(BUSY, self._used_up + 1)
        return 0.0 if is_wanted or self._used_up < BUSY else min(max(took_s, _REST_S), _MAX_S)


class ReadPacing:
    """The number of bytes to take at once: about as many as fill a slice."""

    __slots__ = ("_spent_s", "_turns", "size")

    def __init__(self) -> None:
        self.size = LEAST
        self._spent_s = 0.0
        self._turns = Turns()

    def take(self, data: bytes, handle: Handle) -> float:
        """Handle what was read, at most `size` bytes; how long to rest before the next."""
        if len(data) < LEAST:
            handle(data)
            return 0.0
        began = perf_counter()
        is_wanted = bool(handle(data))
        took_s = perf_counter() - began
        self._spent_s += took_s
        self.size = max(LEAST, min(MOST, int(len(data) * SLICE_S / (took_s or SLICE_S))))
        return self._turns.rest_s(took_s, is_wanted)

    async def spread(self, data: bytes, handle: Handle) -> None:
        """Handle what was read already, a slice in each turn."""
        at = 0
        while at < len(data):
            piece = data[at : at + self.size]
            at += len(piece)
            rest_s = self.take(piece, handle)
            if self._spent_s > SLICE_S or rest_s:
                self._spent_s = 0.0
                await asyncio.sleep(rest_s)
