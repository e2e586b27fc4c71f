"""The event loop of whatever is served over pipes."""

import asyncio
import contextlib
from typing import Any


class PipeLoop(asyncio.SelectorEventLoop):
    """asyncio's own loop, which ends in order also where no thread can be started."""

    async def shutdown_default_executor(self, *within: Any, **how: Any) -> None:
        """Wait for the threads that were lent out; there is none where no more can be had."""
        with contextlib.suppress(RuntimeError):
            await super().shutdown_default_executor(*within, **how)
