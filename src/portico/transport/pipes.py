"""Standard input and output as streams of the event loop, whatever they are."""

import asyncio
import contextlib
import os
import signal
import stat
import sys
import threading
from collections.abc import Callable

from portico.transport.connection import Endpoint
from portico.transport.stdio import MAX_LINE, StdioServer

DRAIN_S = 30.0
HIGH_WATER = 1024 * 1024
MOST_UNREAD = 64 * 1024 * 1024
_CHUNK = 256 * 1024


async def serve_stdio(
    endpoint: Endpoint,
    *,
    out: int | None = None,
    max_line: int = MAX_LINE,
    drain_s: float = DRAIN_S,
) -> None:
    """Serve one client on this process's stdin and stdout until it leaves or SIGTERM comes.

    `out` is what `take_stdout` gave, if it was called already.
    """
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    out = take_stdout() if out is None else out
    writer = _PipeWriter(out) if _is_pipe(out) else _FileWriter(out)
    server = StdioServer(endpoint, writer.write, max_line=max_line)
    await writer.open(server, stop)
    close_input = await _read_stdin(server, stop)
    await stop.wait()
    for number in (signal.SIGTERM, signal.SIGINT):  # a second signal ends us at once
        loop.remove_signal_handler(number)
    # The client may just have closed its input (`echo ... | portico run`): what was asked for
    # is still answered, within the limit.
    await server.drain(drain_s)
    close_input()
    server.ended()
    await writer.close()


def take_stdout() -> int:
    """Keep stdout for the protocol: what a handler prints goes to stderr from now on."""
    sys.stdout.flush()
    out = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return out


def _is_pipe(fd: int) -> bool:
    """True for what the event loop can wait on: pipes, sockets, terminals; not files or devices."""
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(fd)


class _Input(asyncio.Protocol):
    def __init__(self, server: StdioServer, stop: asyncio.Event) -> None:
        self._server = server
        self._stop = stop

    def data_received(self, data: bytes) -> None:
        self._server.received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop.set()


async def _read_stdin(server: StdioServer, stop: asyncio.Event) -> Callable[[], None]:
    loop = asyncio.get_running_loop()
    if _is_pipe(0):
        stdin = os.fdopen(os.dup(0), "rb", buffering=0)
        transport, _ = await loop.connect_read_pipe(lambda: _Input(server, stop), stdin)
        return transport.close
    threading.Thread(target=_pump_file, args=(loop, server, stop), daemon=True).start()
    return lambda: None


def _pump_file(loop: asyncio.AbstractEventLoop, server: StdioServer, stop: asyncio.Event) -> None:
    """Read a regular file, which no event loop can wait on."""
    with contextlib.suppress(RuntimeError):  # the loop has closed: nobody listens any more
        while chunk := os.read(0, _CHUNK):
            loop.call_soon_threadsafe(server.received, chunk)
        loop.call_soon_threadsafe(stop.set)


class _Output(asyncio.BaseProtocol):
    def __init__(self, server: StdioServer, stop: asyncio.Event) -> None:
        self._server = server
        self._stop = stop
        self.lost = asyncio.Event()

    def pause_writing(self) -> None:
        self._server.pause()

    def resume_writing(self) -> None:
        self._server.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.ended()
        self._stop.set()
        self.lost.set()


class _PipeWriter:
    """Writes without blocking; a client that stops reading for too long is let go."""

    def __init__(self, fd: int) -> None:
        self._file = os.fdopen(fd, "wb", buffering=0)
        self._transport: asyncio.WriteTransport | None = None
        self._protocol: _Output | None = None

    async def open(self, server: StdioServer, stop: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.connect_write_pipe(
            lambda: _Output(server, stop), self._file
        )
        transport.set_write_buffer_limits(high=HIGH_WATER)
        self._transport, self._protocol = transport, protocol

    def write(self, parts: tuple[bytes, ...]) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.writelines(parts)
        if transport.get_write_buffer_size() > MOST_UNREAD:
            sys.stderr.write("portico: the client has stopped reading; giving up on it\n")
            transport.abort()

    async def close(self) -> None:
        assert self._transport is not None
        assert self._protocol is not None
        self._transport.close()  # what is buffered still goes out, to a client that reads
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._protocol.lost.wait(), 5)


class _FileWriter:
    """Writes to a regular file, which never makes anyone wait."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    async def open(self, server: StdioServer, stop: asyncio.Event) -> None:
        pass

    def write(self, parts: tuple[bytes, ...]) -> None:
        data = memoryview(b"".join(parts))
        while data:
            data = data[os.write(self._fd, data) :]

    async def close(self) -> None:
        os.close(self._fd)
