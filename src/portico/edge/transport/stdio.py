"""MCP over standard input and output."""

import asyncio
import contextlib
from typing import TYPE_CHECKING

from portico.core.model.defaults import DRAIN_S
from portico.core.model.types import Endpoint
from portico.core.state.stdout import take_stdout
from portico.edge.transport.pipes import MAX_LINE, PipeReader, StdioServer, writer_to
from portico.edge.transport.stop_signals import stop_on_signals

if TYPE_CHECKING:
    from portico.edge.transport.starting import Running, StartingEndpoint

_CANCEL_S = 1.0
"""How long cancelled handlers may take to end."""


async def serve_stdio(
    endpoint: Endpoint,
    *,
    out: int | None = None,
    max_line: int = MAX_LINE,
    drain_s: float = DRAIN_S,
    stop: asyncio.Event | None = None,
    running: "Running | None" = None,
    folder: str = "",
    client_name: str = "",
) -> bool:
    """Serve one client on stdin and stdout until it disconnects or SIGTERM arrives; return False
    if reading requests or writing responses failed.

    `out` comes from `take_stdout`, if it was already called; `stop` acts like SIGTERM. Requests
    wait until `running` is entered, and it is exited after the last response; if it fails to
    start, the serving ends and the error is raised. `folder` and `client_name` are those of the
    client's window.
    """
    stop = stop or asyncio.Event()
    window = (folder, client_name)
    if running is None:
        return await _serve_stdio(endpoint, out, max_line, drain_s, stop, window=window)
    from portico.edge.transport.starting import StartingEndpoint

    opening = StartingEndpoint(endpoint, running)
    async with opening.starting(stop.set):
        is_complete = await _serve_stdio(
            opening, out, max_line, drain_s, stop, opening, window=window
        )
    if opening.failure is not None:
        raise opening.failure
    return is_complete


async def _serve_stdio(
    endpoint: Endpoint,
    out: int | None,
    max_line: int,
    drain_s: float,
    stop: asyncio.Event,
    opening: "StartingEndpoint | None" = None,
    *,
    window: tuple[str, str],
) -> bool:
    restore_signals = stop_on_signals(stop, None if opening is None else opening.interrupt)
    writer = writer_to(take_stdout() if out is None else out)
    server = StdioServer(endpoint, writer.write, max_line=max_line)
    server.session.folder, server.session.client_name = window

    def started(endpoint: Endpoint) -> None:
        server.endpoint = endpoint

    if opening is not None:
        opening.on_start = started
    ended, over = server.disconnected, stop.set
    writer.open(server, lambda: (ended(), over()))

    def input_closed() -> None:
        server.input_closed()
        over()

    reader = PipeReader(0, server.received, input_closed)
    reader.open()
    await stop.wait()
    restore_signals()
    if opening is not None and opening.failure is not None:
        await server.calls.wait_idle()  # they get the reason as their error
    else:
        # The client may have closed only its input (`echo ... | portico run`): its calls still get
        # responses, within the limit.
        await server.drain(drain_s)
    reader.close()
    server.disconnected()
    with contextlib.suppress(TimeoutError):  # cancelled handlers may still use the lifespan
        await asyncio.wait_for(server.calls.wait_idle(), _CANCEL_S)
    await writer.close()
    return not (reader.failed or writer.failed)
