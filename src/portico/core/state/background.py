"""Background tasks."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class Background(set["asyncio.Task[None]"]):
    """A set of running tasks: the event loop alone would let them be garbage-collected."""

    def start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run the coroutine as a task."""
        task = asyncio.create_task(work)
        self.add(task)
        task.add_done_callback(self.discard)
        return task

    def cancel(self) -> None:
        """Cancel all tasks."""
        for task in tuple(self):
            task.cancel()

    async def close(self) -> None:
        """Cancel all tasks, and wait until they have ended."""
        self.cancel()
        await self.wait()

    async def wait(self, within_s: float | None = None) -> None:
        """Wait until all tasks are done, up to the timeout."""
        if self:
            await asyncio.wait(self, timeout=within_s)


async def first_of(*waits: Coroutine[Any, Any, object]) -> None:
    """Wait for the first to finish, and cancel the others."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
