"""Waiting for what becomes true by itself; a test's own timeout says how long."""

import asyncio
from collections.abc import Awaitable, Callable


async def until(true: Callable[[], bool] | Callable[[], Awaitable[bool]]) -> None:
    """Wait until this is true."""
    while True:
        found = true()
        if found if isinstance(found, bool) else await found:
            return
        await asyncio.sleep(0.005)
