"""`wrap` put together: one upstream, its memory on disk, and the doorway in front of it."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from portico.chain.mirror import MirrorEndpoint
from portico.model.errors import McpError, TargetError
from portico.model.message import Request
from portico.upstream.line import Plan
from portico.upstream.upstream import Upstream
from portico.upstream.wire import Address

if TYPE_CHECKING:
    from portico.catalog.disk import Store


class Wrapping(Struct, frozen=True):
    """What to put a doorway in front of, and how."""

    address: Address
    plan: Plan
    key: Callable[[str], str]
    """The name of a view of this upstream on disk."""
    cache: bool = True
    warm: bool = False
    refresh: bool = False


class Wrapped:
    """One upstream behind its doorway, from start to end."""

    def __init__(self, wrapping: Wrapping, *, alone: bool) -> None:
        """`alone` for a single client: without anything to offer, there is no point in staying."""
        self._wrapping = wrapping
        self.stop = asyncio.Event()
        """Set when there is no point in serving any more."""
        self.failure: McpError | None = None
        self.upstream = Upstream(
            wrapping.address,
            wrapping.plan,
            memory=_memory() if wrapping.cache else None,
            key=wrapping.key,
            report=report,
        )
        self.endpoint = MirrorEndpoint(
            self.upstream, failed, warm=wrapping.warm, lost=self._lost if alone else None
        )
        self._refreshing: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None, None]:
        """Listen for what an operator wants; afterwards nothing is left of the upstream."""
        loop = asyncio.get_running_loop()
        with contextlib.suppress(NotImplementedError, RuntimeError, AttributeError):
            loop.add_signal_handler(signal.SIGHUP, self.refresh)
        if self._wrapping.refresh:
            self.refresh()
        try:
            yield
        finally:
            for task in tuple(self._refreshing):
                task.cancel()
            await self.upstream.close()

    def refresh(self) -> None:
        """Ask the upstream for all it offers, behind."""
        task = asyncio.create_task(self._refresh())
        self._refreshing.add(task)
        task.add_done_callback(self._refreshing.discard)

    async def _refresh(self) -> None:
        try:
            await self.upstream.refresh()
        except (TargetError, McpError) as error:
            report(f"cannot refresh: {error}")

    def _lost(self, error: McpError) -> None:
        self.failure = error
        self.stop.set()


def report(words: str) -> None:
    """Tell the operator."""
    sys.stderr.write(f"portico: {words}\n")
    sys.stderr.flush()


def failed(request: Request, error: BaseException) -> None:
    """Tell the operator, not the client, where we failed ourselves."""
    import logging

    logging.getLogger("portico").error("%s failed", request.method, exc_info=error)


def _memory() -> "Store":
    from portico.catalog.disk import Store
    from portico.config.paths import cache_dir

    return Store(os.path.join(cache_dir(), "catalogs"), report=report)
