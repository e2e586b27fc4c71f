"""A server's share of the loop: small if handling is slow, unlimited for awaited data."""

import asyncio
from unittest.mock import patch

from portico.upstream.process.read_pacing import (
    MAX_BUSY_SLICES,
    MAX_READ,
    MIN_READ,
    SLICE_S,
    ReadPacing,
)


class Clock:
    """A clock that only moves when set."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def taken(pace: ReadPacing, clock: Clock, s_per_byte: float, *, wanted: bool = False) -> float:
    """Handle a full read at this cost per byte; return the pause that follows."""

    def handle(data: bytes) -> bool:
        clock.now += len(data) * s_per_byte
        return wanted

    with patch("portico.upstream.process.read_pacing.perf_counter", clock):
        return pace.take(bytes(pace.size), handle)


def test_a_flood_of_small_messages_is_read_in_small_pieces_and_a_large_result_in_large_ones() -> (
    None
):
    pace, clock = ReadPacing(), Clock()
    for _ in range(3):
        taken(pace, clock, 1e-7)  # 5 us for a message of 50 bytes
    assert MIN_READ <= pace.size <= SLICE_S / 1e-7
    taken(pace, clock, 1e-10)
    assert pace.size == MAX_READ


def test_a_flood_that_nobody_waits_for_has_to_rest_and_a_burst_has_not() -> None:
    pace, clock = ReadPacing(), Clock()
    rests = [taken(pace, clock, 1e-6) for _ in range(2 * MAX_BUSY_SLICES)]
    assert not any(rests[: MAX_BUSY_SLICES - 1])
    assert all(rests[MAX_BUSY_SLICES:])


def test_answers_are_never_delayed() -> None:
    pace, clock = ReadPacing(), Clock()
    assert not any(taken(pace, clock, 1e-6, wanted=True) for _ in range(2 * MAX_BUSY_SLICES))


async def test_what_was_read_at_once_is_handled_over_several_turns() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    clock, pace = Clock(), ReadPacing()
    seen: list[int] = []

    def handle(data: bytes) -> None:
        clock.now += len(data) * 1e-7
        seen.append(turns)

    beside = asyncio.create_task(others())
    with patch("portico.upstream.process.read_pacing.perf_counter", clock):
        await pace.handle_in_slices(bytes(64 * 1024), handle)
    beside.cancel()
    assert seen[-1] - seen[0] > 10
