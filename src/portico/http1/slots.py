"""A number of places, and a queue for them."""

import asyncio
from collections import deque


class Slots:
    """Lets so many in at a time; the others wait, in order."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.inside = 0
        """How many are in; who takes one of `most` places without waiting counts it here."""
        self.waiting: deque[asyncio.Future[None]] = deque()

    async def place(self) -> None:
        """Take a place; a caller that is cancelled while it waits gives up its turn."""
        if self.inside < self.most:
            self.inside += 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append(place)
        try:
            await place
        except BaseException:
            if place.done() and not place.cancelled():
                self.leave()  # it was ours the moment we gave up
            elif place in self.waiting:
                self.waiting.remove(place)
            raise

    def leave(self) -> None:
        """Give the place to the next."""
        while self.waiting:
            place = self.waiting.popleft()
            if not place.done():
                place.set_result(None)
                return
        self.inside -= 1
