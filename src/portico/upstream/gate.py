"""How many calls may be under way at an upstream, and how many may wait."""

import asyncio
from collections import deque

from portico.model.errors import TargetError


class Gate:
    """Lets so many in at a time; so many more may queue, in order."""

    def __init__(self, server: str, most: int, queue: int) -> None:
        self._server = server
        self.most = most
        self._queue = queue
        self.inside = 0
        """How many are in; who takes one of `most` places without waiting counts it here."""
        self.waiting: deque[asyncio.Future[None]] = deque()

    async def enter(self, within_s: float) -> None:
        """Take a place, waiting for one if need be; raises TargetError if there is none."""
        if self.inside < self.most:
            self.inside += 1
            return
        if len(self.waiting) >= self._queue:
            why = f"has {self.most} calls under way and {self._queue} waiting: try again later"
            raise TargetError(f"{self._server} {why}", kind="busy", server=self._server)
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append(place)
        try:
            async with asyncio.timeout(within_s):
                await place
        except BaseException as error:
            if place.done() and not place.cancelled():
                self.leave()  # it was ours the moment we gave up
            elif place in self.waiting:
                self.waiting.remove(place)
            if isinstance(error, TimeoutError):
                why = f"{self._server} was busy for {within_s:g} s with {self.most} other calls"
                raise TargetError(why, kind="timeout", server=self._server) from None
            raise

    def leave(self) -> None:
        """Give the place to the next."""
        while self.waiting:
            place = self.waiting.popleft()
            if not place.done():
                place.set_result(None)
                return
        self.inside -= 1
