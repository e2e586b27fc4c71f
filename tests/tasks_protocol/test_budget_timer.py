"""The one timer of all calls that become tasks after a time."""

import asyncio

from portico.library.tasks.mcp.promotion import BudgetTimer
from tests.support.running import WAIT_S


class Call:
    """Notes when it is promoted."""

    def __init__(self, name: str, promoted: "asyncio.Queue[str]") -> None:
        self._name = name
        self._promoted = promoted

    def promote(self) -> None:
        self._promoted.put_nowait(self._name)


async def test_each_call_is_promoted_after_its_own_time() -> None:
    timer, promoted = BudgetTimer(), asyncio.Queue[str]()
    timer.start(Call("long", promoted), 0.2)
    timer.start(Call("short", promoted), 0.02)  # the timer must fire before it was to
    timer.start(Call("longer", promoted), 0.3)
    async with asyncio.timeout(WAIT_S):
        assert [await promoted.get() for _ in range(3)] == ["short", "long", "longer"]


async def test_a_call_that_was_answered_is_not_promoted() -> None:
    timer, promoted = BudgetTimer(), asyncio.Queue[str]()
    answered = Call("answered", promoted)
    timer.start(answered, 0.01)
    timer.start(Call("open", promoted), 0.05)
    timer.stop(answered)
    timer.stop(answered)
    async with asyncio.timeout(WAIT_S):
        assert await promoted.get() == "open"
    timer.start(Call("later", promoted), 0.01)  # after it had nothing to wait for
    async with asyncio.timeout(WAIT_S):
        assert await promoted.get() == "later"
    assert promoted.empty()


def test_a_timer_works_in_the_next_loop() -> None:
    timer = BudgetTimer()

    async def main(is_left: bool) -> None:
        promoted = asyncio.Queue[str]()
        timer.start(Call("call", promoted), 60 if is_left else 0.01)
        if not is_left:
            async with asyncio.timeout(WAIT_S):
                assert await promoted.get() == "call"

    asyncio.run(main(is_left=True))
    asyncio.run(main(is_left=False))
