"""Runs a transport that a user wrote."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from portico.model.types import Endpoint
from portico.state.report import report
from portico.transport.stop_signals import stop_on_signals

Transport = Callable[[Endpoint, str | None, asyncio.Event, float], Coroutine[Any, Any, None]]
"""`async def serve(endpoint, address, stop, drain_s)`: serves the clients of an endpoint until the
event `stop` is set, lets their calls finish within `drain_s` seconds, and closes everything."""
DRAIN_S = 30.0
CLOSE_S = 10.0
"""How long a transport may take to return after the drain."""


async def serve_over(
    transport: Transport,
    endpoint: Endpoint,
    address: str | None = None,
    *,
    drain_s: float = DRAIN_S,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve over a transport until it returns; SIGTERM and SIGINT set `stop`.

    Raises what the transport raises. A transport that outlasts the drain is cancelled.
    """
    stop = stop or asyncio.Event()
    restore_signals = stop_on_signals(stop)
    serving = asyncio.create_task(transport(endpoint, address, stop, drain_s))
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
        restore_signals()  # a second signal ends the process at once
        _, late = await asyncio.wait((serving,), timeout=drain_s + CLOSE_S)
        if late:
            after = f"{drain_s + CLOSE_S:g} s after the stop"
            report(f"the transport has not returned {after}; cancelling it")
        else:
            serving.result()
    finally:
        stopping.cancel()
        serving.cancel()
        restore_signals()
