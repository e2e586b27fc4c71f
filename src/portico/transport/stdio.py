"""MCP over standard input and output."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable

from portico.model.types import Endpoint
from portico.transport.pipes import MAX_LINE, PipeReader, StdioServer, writer_to

DRAIN_S = 30.0


async def serve_stdio(
    endpoint: Endpoint,
    *,
    out: int | None = None,
    max_line: int = MAX_LINE,
    drain_s: float = DRAIN_S,
    stop: asyncio.Event | None = None,
) -> bool:
    """Serve one client on stdin and stdout until it disconnects or SIGTERM arrives; return False
    if reading requests or writing responses failed.

    `out` comes from `take_stdout`, if it was already called; `stop` acts like SIGTERM.
    """
    stop = stop or asyncio.Event()
    restore_signals = stop_on_signals(stop)
    writer = writer_to(take_stdout() if out is None else out)
    server = StdioServer(endpoint, writer.write, max_line=max_line)
    ended, over = server.disconnected, stop.set
    writer.open(server, lambda: (ended(), over()))

    def input_closed() -> None:
        server.input_closed()
        over()

    reader = PipeReader(0, server.received, input_closed)
    reader.open()
    await stop.wait()
    restore_signals()
    # The client may have closed only its input (`echo ... | portico run`): its calls still get
    # responses, within the limit.
    await server.drain(drain_s)
    reader.close()
    server.disconnected()
    await writer.close()
    return not (reader.failed or writer.failed)


def stop_on_signals(stop: asyncio.Event) -> Callable[[], None]:
    """Set `stop` on SIGTERM and SIGINT; return a function that restores the default handlers."""
    loop = asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT)
    for number in signals:
        loop.add_signal_handler(number, stop.set)

    def restore_signals() -> None:
        for number in signals:
            loop.remove_signal_handler(number)

    return restore_signals


def take_stdout() -> int:
    """Reserve stdout for the protocol: prints of handlers go to stderr from now on."""
    sys.stdout.flush()
    out = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return out
