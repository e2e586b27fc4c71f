"""Waits for a condition; the test's own timeout is the limit."""

import asyncio
from collections.abc import Awaitable, Callable


async def until(true: Callable[[], bool] | Callable[[], Awaitable[bool]]) -> None:
    """Wait until this is true."""
    while True:
        found = true()
        if found if isinstance(found, bool) else await found:
            return
        await asyncio.sleep(0.005)
