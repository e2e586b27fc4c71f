"""The limits of concurrent and of waiting calls at an upstream."""

import asyncio

from portico.core.http1.slots import Slots
from portico.core.model.errors import TargetError


class ConcurrencyLimiter(Slots):
    """Limits the concurrent calls; a limited number more may queue, in order."""

    def __init__(self, server: str, limit: int, queue: int) -> None:
        super().__init__(limit)
        self._server = server
        self._queue = queue

    async def enter(self, within_s: float) -> None:
        """Take a slot, waiting for one within the time; raises TargetError if there is none."""
        if self.used >= self.limit and len(self.waiting) >= self._queue:
            why = f"has {self.limit} calls running and {self._queue} waiting; try again later"
            raise TargetError(f"{self._server} {why}", kind="busy", server=self._server)
        try:
            async with asyncio.timeout(within_s):
                await self.acquire()
        except TimeoutError:
            why = f"{self._server} was busy for {within_s:g} s with {self.limit} other calls"
            raise TargetError(why, kind="timeout", server=self._server) from None
