"""Serves while a server is starting: its clients' requests wait, and can be refused."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

from portico.core.model.context import Context
from portico.core.model.errors import INTERNAL_ERROR
from portico.core.model.message import NOTHING, Request, Response
from portico.core.model.types import Endpoint
from portico.core.protocol.codec import error_response
from portico.edge.transport.calls_in_flight import shutdown_error

Running = AbstractAsyncContextManager[object]
"""A context that is entered before the first request is served, and exited after the last one."""

GRACE_S = 1.0
"""The time to complete a start after the client has left."""


class StartingEndpoint:
    """An endpoint whose requests wait until `running` is entered."""

    def __init__(self, endpoint: Endpoint, running: Running) -> None:
        self._endpoint = endpoint
        self._running = running
        self._ready = asyncio.Event()
        self._start: asyncio.Task[None] | None = None
        self.failure: Exception | None = None
        """Why it did not start."""
        self._is_started = False
        self.on_start: Callable[[Endpoint], None] | None = None
        """Called with the endpoint itself, which needs nothing in front of it once it runs."""

    async def handle(self, request: Request, context: Context) -> Response:
        await self._ready.wait()
        if self._is_started:
            return await self._endpoint.handle(request, context)
        if not request.id:
            return NOTHING
        if self.failure is None:
            return shutdown_error(request.id)
        return error_response(request.id, INTERNAL_ERROR, str(self.failure))

    @asynccontextmanager
    async def starting(self, stop: Callable[[], object]) -> AsyncGenerator[None, None]:
        """Start in the background, and call `stop` if that fails."""
        async with AsyncExitStack() as stack:
            self._start = asyncio.create_task(self._enter(stack, stop))
            try:
                yield
            finally:
                # A start that is about to fail is reported, even if the client has left already.
                await asyncio.wait({self._start}, timeout=GRACE_S)
                self.interrupt()
                await asyncio.wait({self._start})

    def interrupt(self) -> None:
        """Give up a start that is not complete, and refuse the requests that wait for it."""
        if self._start is not None and not self._ready.is_set():
            self._start.cancel()
            self._ready.set()

    async def _enter(self, stack: AsyncExitStack, stop: Callable[[], object]) -> None:
        try:
            await stack.enter_async_context(self._running)
            self._is_started = True
            if self.on_start is not None:
                self.on_start(self._endpoint)
        except Exception as error:  # noqa: BLE001  (the server's caller gets it)
            self.failure = error
            stop()
        finally:
            self._ready.set()


async def start_unless(stop: asyncio.Event, running: Running, stack: AsyncExitStack) -> bool:
    """Enter a context; give up and return False as soon as `stop` is set."""
    starting = asyncio.create_task(stack.enter_async_context(running))
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            await starting
        return starting.done()
    finally:
        stopping.cancel()
        starting.cancel()
        await asyncio.wait((starting,))
