"""How many calls may be under way at an upstream, and how many may wait."""

import asyncio
from collections import deque

from portico.model.errors import TargetError


class Gate:
    """Lets so many in at a time; so many more may queue, in order."""

    def __init__(self, server: str, most: int, queue: int) -> None:
        self._server = server
        self._most = most
        self._queue = queue
        self._inside = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def enter(self, within_s: float) -> None:
        """Take a place, waiting for one if need be; raises TargetError if there is none."""
        if self._inside < self._most:
            self._inside += 1
            return
        if len(self._waiting) >= self._queue:
            why = f"has {self._most} calls under way and {self._queue} waiting: try again later"
            raise TargetError(f"{self._server} {why}", kind="busy", server=self._server)
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            async with asyncio.timeout(within_s):
                await place
        except BaseException as error:
            if place.done() and not place.cancelled():
                self.leave()  # it was ours the moment we gave up
            elif place in self._waiting:
                self._waiting.remove(place)
            if isinstance(error, TimeoutError):
                why = f"{self._server} was busy for {within_s:g} s with {self._most} other calls"
                raise TargetError(why, kind="timeout", server=self._server) from None
            raise

    def try_enter(self) -> bool:
        """Take a place if there is one."""
        if self._inside >= self._most:
            return False
        self._inside += 1
        return True

    def leave(self) -> None:
        """Give the place to the next."""
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                return
        self._inside -= 1
