"""Runs a transport that a user wrote."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

from portico.core.model.defaults import DRAIN_S
from portico.core.model.types import Endpoint
from portico.core.state.report import report
from portico.edge.transport.starting import Running, start_unless
from portico.edge.transport.stop_signals import stop_on_signals

Transport = Callable[[Endpoint, str | None, asyncio.Event, float], Coroutine[Any, Any, None]]
"""`async def serve(endpoint, address, stop, drain_s)`: serves the clients of an endpoint until the
event `stop` is set, lets their calls finish within `drain_s` seconds, and closes everything."""
CLOSE_S = 10.0
"""How long a transport may take to return after the drain."""
_CANCEL_S = 1.0
"""How long a cancelled transport may take to end."""


async def serve_over(
    transport: Transport,
    endpoint: Endpoint,
    address: str | None = None,
    *,
    drain_s: float = DRAIN_S,
    stop: asyncio.Event | None = None,
    running: Running | None = None,
) -> None:
    """Serve over a transport until it returns; SIGTERM and SIGINT set `stop`.

    `running` is entered before the transport starts, and exited after it has ended. Raises what the
    transport raises. A transport that outlasts the drain is cancelled.
    """
    stop = stop or asyncio.Event()
    async with AsyncExitStack() as stack:
        restore_signals = stop_on_signals(stop)
        stack.callback(restore_signals)
        if running is not None and not await start_unless(stop, running, stack):
            return
        serving = asyncio.create_task(transport(endpoint, address, stop, drain_s))
        try:
            await _until(serving, stop)
            restore_signals()  # a second signal ends the process at once
            await _end(serving, drain_s + CLOSE_S)
        finally:
            serving.cancel()
            await asyncio.wait((serving,), timeout=_CANCEL_S)


async def _until(serving: "asyncio.Task[None]", stop: asyncio.Event) -> None:
    """Wait until the transport returns or `stop` is set."""
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()


async def _end(serving: "asyncio.Task[None]", within_s: float) -> None:
    _, late = await asyncio.wait((serving,), timeout=within_s)
    if late:
        report(f"the transport has not returned {within_s:g} s after the stop; cancelling it")
    else:
        serving.result()
