"""A limited number of slots, and a queue for them."""

import asyncio
from collections import deque


class Slots:
    """Hands out up to `limit` slots; further callers wait in order."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        """Slots in use; a caller that takes a free one without waiting adds it here."""
        self.waiting: deque[asyncio.Future[None]] = deque()

    async def acquire(self) -> None:
        """Take a slot; a caller that is cancelled while it waits leaves the queue."""
        if self.used < self.limit:
            self.used += 1
            return
        slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append(slot)
        try:
            await slot
        except BaseException:
            if slot.done() and not slot.cancelled():
                self.release()  # it was granted just before the cancellation
            elif slot in self.waiting:
                self.waiting.remove(slot)
            raise

    def release(self) -> None:
        """Pass the slot on to the next caller."""
        while self.waiting:
            slot = self.waiting.popleft()
            if not slot.done():
                slot.set_result(None)
                return
        self.used -= 1
