"""The limiter: limited concurrent and queued calls, and no slot is ever lost."""

import asyncio
import random

import pytest

from portico.core.model.errors import TargetError
from portico.upstream.connections.concurrency_limiter import ConcurrencyLimiter

LONG = 60.0


def entered(limiter: ConcurrencyLimiter) -> bool:
    """Take a place as a call on its short way does, if there is one."""
    if limiter.used >= limiter.limit:
        return False
    limiter.used += 1
    return True


def is_full(limiter: ConcurrencyLimiter, limit: int) -> bool:
    """True if exactly `limit` slots are free; they are free again afterwards."""
    taken = 0
    while entered(limiter):
        taken += 1
    for _ in range(taken):
        limiter.release()
    return taken == limit


async def queued(limiter: ConcurrencyLimiter, within_s: float = LONG) -> "asyncio.Task[None]":
    """One who waits in the queue by now."""
    task = asyncio.create_task(limiter.enter(within_s))
    await asyncio.sleep(0)
    assert not task.done()
    return task


async def test_so_many_enter_at_once_and_one_more_does_not() -> None:
    limiter = ConcurrencyLimiter("files", 3, 0)
    for _ in range(3):
        await limiter.enter(LONG)
    assert not entered(limiter)
    with pytest.raises(TargetError) as raised:
        await limiter.enter(LONG)
    assert (raised.value.kind, raised.value.server) == ("busy", "files")
    assert "3 calls running and 0 waiting" in str(raised.value)


async def test_a_place_that_is_left_can_be_taken_again() -> None:
    limiter = ConcurrencyLimiter("files", 1, 0)
    for _ in range(5):
        await limiter.enter(LONG)
        limiter.release()
    assert is_full(limiter, 1)


async def test_those_who_wait_come_in_by_turns() -> None:
    limiter = ConcurrencyLimiter("files", 1, 10)
    await limiter.enter(LONG)
    order: list[int] = []

    async def come(number: int) -> None:
        await limiter.enter(LONG)
        order.append(number)
        limiter.release()

    tasks = [asyncio.create_task(come(number)) for number in range(10)]
    await asyncio.sleep(0)
    limiter.release()
    await asyncio.gather(*tasks)
    assert order == list(range(10))
    assert is_full(limiter, 1)


async def test_the_queue_is_bounded() -> None:
    limiter = ConcurrencyLimiter("files", 1, 2)
    await limiter.enter(LONG)
    waiting = [await queued(limiter), await queued(limiter)]
    with pytest.raises(TargetError, match="try again later"):
        await limiter.enter(LONG)
    for task in waiting:
        limiter.release()
        await task
    limiter.release()
    assert is_full(limiter, 1)


async def test_nobody_overtakes_the_queue() -> None:
    limiter = ConcurrencyLimiter("files", 1, 2)
    await limiter.enter(LONG)
    waiting = await queued(limiter)
    limiter.release()  # the place is given on, before its new owner has run
    assert not entered(limiter)
    await waiting
    limiter.release()
    assert entered(limiter)


async def test_who_waits_too_long_is_told_and_leaves_the_queue() -> None:
    limiter = ConcurrencyLimiter("files", 1, 1)
    await limiter.enter(LONG)
    with pytest.raises(TargetError) as raised:
        await limiter.enter(0.01)
    assert raised.value.kind == "timeout"
    assert "busy for 0.01 s with 1 other calls" in str(raised.value)
    waiting = await queued(limiter)  # there is room in the queue again
    limiter.release()
    await waiting
    limiter.release()
    assert is_full(limiter, 1)


async def test_who_is_cancelled_in_the_queue_is_passed_over() -> None:
    limiter = ConcurrencyLimiter("files", 1, 2)
    await limiter.enter(LONG)
    first, second = await queued(limiter), await queued(limiter)
    first.cancel()
    await asyncio.wait({first})
    assert first.cancelled()
    limiter.release()
    await second
    limiter.release()
    assert is_full(limiter, 1)


async def test_who_is_cancelled_with_the_place_in_hand_gives_it_on() -> None:
    limiter = ConcurrencyLimiter("files", 1, 2)
    await limiter.enter(LONG)
    first, second = await queued(limiter), await queued(limiter)
    limiter.release()  # to the first, who is cancelled before it has run
    first.cancel()
    await asyncio.wait({first})
    await asyncio.wait_for(second, LONG)
    limiter.release()
    assert is_full(limiter, 1)


async def test_however_they_come_and_go_no_place_is_lost() -> None:
    """Enter, time out, be cancelled and leave at random: all places are there in the end."""
    chance = random.Random(7)
    limiter = ConcurrencyLimiter("files", 4, 8)
    inside = limit = refused = 0

    async def come() -> None:
        nonlocal inside, limit, refused
        try:
            await limiter.enter(chance.choice((0.001, LONG)))
        except TargetError:
            refused += 1
            return
        inside += 1
        limit = max(limit, inside)
        try:
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
        finally:
            inside -= 1
            limiter.release()

    for _ in range(200):
        tasks = [asyncio.create_task(come()) for _ in range(chance.randrange(20))]
        await asyncio.sleep(0)
        for task in tasks:
            if chance.random() < 0.3:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert limit == 4
    assert refused
    assert is_full(limiter, 4)
