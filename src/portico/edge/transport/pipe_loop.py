"""The event loop of a server over pipes."""

import asyncio
import contextlib
from typing import Any


class PipeLoop(asyncio.SelectorEventLoop):
    """asyncio's own loop, but it shuts down cleanly even where no thread can be started."""

    async def shutdown_default_executor(self, *within: Any, **how: Any) -> None:
        """Shut the executor down; this needs a thread, which may not be available."""
        with contextlib.suppress(RuntimeError):
            await super().shutdown_default_executor(*within, **how)
