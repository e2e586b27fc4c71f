"""The gate: so many calls at a time, so many more in the queue, and no place ever lost."""

import asyncio
import random

import pytest

from portico.model.errors import TargetError
from portico.upstream.concurrency_limiter import ConcurrencyLimiter

LONG = 60.0


def entered(gate: ConcurrencyLimiter) -> bool:
    """Take a place as a call on its short way does, if there is one."""
    if gate.used >= gate.limit:
        return False
    gate.used += 1
    return True


def is_full(gate: ConcurrencyLimiter, most: int) -> bool:
    """True if exactly so many places are free, and none more; afterwards they are free again."""
    taken = 0
    while entered(gate):
        taken += 1
    for _ in range(taken):
        gate.release()
    return taken == most


async def queued(gate: ConcurrencyLimiter, within_s: float = LONG) -> "asyncio.Task[None]":
    """One who waits in the queue by now."""
    task = asyncio.create_task(gate.enter(within_s))
    await asyncio.sleep(0)
    assert not task.done()
    return task


async def test_so_many_enter_at_once_and_one_more_does_not() -> None:
    gate = ConcurrencyLimiter("files", 3, 0)
    for _ in range(3):
        await gate.enter(LONG)
    assert not entered(gate)
    with pytest.raises(TargetError) as raised:
        await gate.enter(LONG)
    assert (raised.value.kind, raised.value.server) == ("busy", "files")
    assert "3 calls running and 0 waiting" in str(raised.value)


async def test_a_place_that_is_left_can_be_taken_again() -> None:
    gate = ConcurrencyLimiter("files", 1, 0)
    for _ in range(5):
        await gate.enter(LONG)
        gate.release()
    assert is_full(gate, 1)


async def test_those_who_wait_come_in_by_turns() -> None:
    gate = ConcurrencyLimiter("files", 1, 10)
    await gate.enter(LONG)
    order: list[int] = []

    async def come(number: int) -> None:
        await gate.enter(LONG)
        order.append(number)
        gate.release()

    tasks = [asyncio.create_task(come(number)) for number in range(10)]
    await asyncio.sleep(0)
    gate.release()
    await asyncio.gather(*tasks)
    assert order == list(range(10))
    assert is_full(gate, 1)


async def test_the_queue_is_bounded() -> None:
    gate = ConcurrencyLimiter("files", 1, 2)
    await gate.enter(LONG)
    waiting = [await queued(gate), await queued(gate)]
    with pytest.raises(TargetError, match="try again later"):
        await gate.enter(LONG)
    for task in waiting:
        gate.release()
        await task
    gate.release()
    assert is_full(gate, 1)


async def test_nobody_overtakes_the_queue() -> None:
    gate = ConcurrencyLimiter("files", 1, 2)
    await gate.enter(LONG)
    waiting = await queued(gate)
    gate.release()  # the place is given on, before its new owner has run
    assert not entered(gate)
    await waiting
    gate.release()
    assert entered(gate)


async def test_who_waits_too_long_is_told_and_leaves_the_queue() -> None:
    gate = ConcurrencyLimiter("files", 1, 1)
    await gate.enter(LONG)
    with pytest.raises(TargetError) as raised:
        await gate.enter(0.01)
    assert raised.value.kind == "timeout"
    assert "busy for 0.01 s with 1 other calls" in str(raised.value)
    waiting = await queued(gate)  # there is room in the queue again
    gate.release()
    await waiting
    gate.release()
    assert is_full(gate, 1)


async def test_who_is_cancelled_in_the_queue_is_passed_over() -> None:
    gate = ConcurrencyLimiter("files", 1, 2)
    await gate.enter(LONG)
    first, second = await queued(gate), await queued(gate)
    first.cancel()
    await asyncio.wait({first})
    assert first.cancelled()
    gate.release()
    await second
    gate.release()
    assert is_full(gate, 1)


async def test_who_is_cancelled_with_the_place_in_hand_gives_it_on() -> None:
    gate = ConcurrencyLimiter("files", 1, 2)
    await gate.enter(LONG)
    first, second = await queued(gate), await queued(gate)
    gate.release()  # to the first, who is cancelled before it has run
    first.cancel()
    await asyncio.wait({first})
    await asyncio.wait_for(second, LONG)
    gate.release()
    assert is_full(gate, 1)


async def test_however_they_come_and_go_no_place_is_lost() -> None:
    """Enter, time out, be cancelled and leave at random: all places are there in the end."""
    chance = random.Random(7)
    gate = ConcurrencyLimiter("files", 4, 8)
    inside = most = refused = 0

    async def come() -> None:
        nonlocal inside, most, refused
        try:
            await gate.enter(chance.choice((0.001, LONG)))
        except TargetError:
            refused += 1
            return
        inside += 1
        most = max(most, inside)
        try:
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
        finally:
            inside -= 1
            gate.release()

    for _ in range(200):
        tasks = [asyncio.create_task(come()) for _ in range(chance.randrange(20))]
        await asyncio.sleep(0)
        for task in tasks:
            if chance.random() < 0.3:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert most == 4
    assert refused
    assert is_full(gate, 4)
