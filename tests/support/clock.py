"""An event loop whose clock a test moves, so that no test waits for a limit to pass."""

import asyncio


class MovableLoop(asyncio.SelectorEventLoop):
    """An event loop that runs ahead of the real time by what a test adds."""

    ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self.ahead_s


class Clock:
    """The clock of the running loop; a test that takes the `clock` fixture runs on such a loop."""

    def __call__(self) -> float:
        return asyncio.get_running_loop().time()

    async def advance(self, seconds: float) -> None:
        """Let time pass at once, and let all timers that are due by then ring."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, MovableLoop)
        await asyncio.sleep(0)  # ready callbacks run first
        loop.ahead_s += seconds
        for _ in range(10):  # a timer wakes a task, which may wake another
            await asyncio.sleep(0)
