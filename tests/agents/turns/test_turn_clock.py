"""The timeouts of a turn."""

from portico.agents.turns.turn_clock import HARD, IDLE, TurnClock
from tests.support.clock import Clock


async def test_the_idle_timeout_begins_again_with_every_update(clock: Clock) -> None:
    expired: list[str] = []
    turn = TurnClock(10, 1000, expired.append)
    for _ in range(5):
        await clock.advance(9)
        turn.touch()
    assert expired == []
    await clock.advance(11)
    assert expired == [IDLE]


async def test_the_hard_timeout_counts_questions_too(clock: Clock) -> None:
    expired: list[str] = []
    turn = TurnClock(10, 100, expired.append)
    with turn.paused():
        await clock.advance(99)
        assert expired == []
        await clock.advance(2)
    assert expired == [HARD]
    await clock.advance(1000)
    assert expired == [HARD]


async def test_a_pause_inside_a_pause_ends_with_the_outer_one(clock: Clock) -> None:
    expired: list[str] = []
    turn = TurnClock(10, 1000, expired.append)
    with turn.paused():
        with turn.paused():
            await clock.advance(20)
        await clock.advance(20)
    await clock.advance(9)
    assert expired == []
    await clock.advance(2)
    assert expired == [IDLE]


async def test_a_stopped_clock_never_expires(clock: Clock) -> None:
    expired: list[str] = []
    TurnClock(10, 100, expired.append).stop()
    await clock.advance(1000)
    assert expired == []
