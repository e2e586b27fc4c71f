"""Standard input and output as streams of the event loop, whatever they are."""

import asyncio
import contextlib
import fcntl
import os
import signal
import stat
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from portico.transport.connection import Endpoint
from portico.transport.stdio import MAX_LINE, StdioServer

DRAIN_S = 30.0
HIGH_WATER = 1024 * 1024
MOST_UNREAD = 64 * 1024 * 1024
_CHUNK = 64 * 1024
_LAST_WORDS_S = 5.0
_PIPE_SIZE = 1024 * 1024


async def serve_stdio(
    endpoint: Endpoint,
    *,
    out: int | None = None,
    max_line: int = MAX_LINE,
    drain_s: float = DRAIN_S,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve one client on this process's stdin and stdout until it leaves or SIGTERM comes.

    `out` is what `take_stdout` gave, if it was called already; `stop` ends it as SIGTERM does.
    """
    loop = asyncio.get_running_loop()
    stop = stop or asyncio.Event()
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


async def _read_stdin(server: StdioServer, stop: asyncio.Event) -> Callable[[], None]:
    loop = asyncio.get_running_loop()
    if not _is_pipe(0):
        threading.Thread(target=_pump_file, args=(loop, server, stop), daemon=True).start()
        return lambda: None

    def take() -> None:
        try:
            data = os.read(0, _CHUNK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""  # a terminal that is gone
        if data:
            server.received(data)
        else:
            loop.remove_reader(0)
            stop.set()

    def close() -> None:
        loop.remove_reader(0)
        os.set_blocking(0, True)  # a terminal is the shell's again

    os.set_blocking(0, False)
    loop.add_reader(0, take)
    return close


def _pump_file(loop: asyncio.AbstractEventLoop, server: StdioServer, stop: asyncio.Event) -> None:
    """Read a regular file, which no event loop can wait on."""
    with contextlib.suppress(RuntimeError):  # the loop has closed: nobody listens any more
        while chunk := os.read(0, _CHUNK):
            loop.call_soon_threadsafe(server.received, chunk)
        loop.call_soon_threadsafe(stop.set)


class _PipeWriter:
    """Writes without blocking and, as long as the client keeps up, without copying.

    asyncio's own pipe transports join the parts first and read a quarter of a megabyte at a time;
    for a message of a few kilobytes that costs more than all the rest.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._waiting: deque[memoryview] = deque()
        self._size = 0
        self._lost = False
        self._empty = asyncio.Event()
        self._empty.set()

    async def open(self, server: StdioServer, stop: asyncio.Event) -> None:
        """Write for this server from now on; `stop` is set if the client goes."""
        self._loop = asyncio.get_running_loop()
        self._server, self._stop = server, stop
        os.set_blocking(self._fd, False)
        # Room for a few large lists at once: a pipe that is full costs more than writing to it.
        with contextlib.suppress(AttributeError, OSError):  # Linux only, and pipes only
            fcntl.fcntl(self._fd, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)

    def write(self, parts: tuple[bytes, ...]) -> None:
        """Write the parts of one line, or keep what the client does not take yet."""
        if self._lost:
            return
        written = 0 if self._waiting else self._try(os.writev, parts)
        if written is None:
            return
        left = sum(map(len, parts)) - written
        if not left:
            return
        if not self._waiting:
            self._loop.add_writer(self._fd, self._go_on)
            self._empty.clear()
        self._waiting.append(memoryview(b"".join(parts))[-left:])
        self._size += left
        if self._size > MOST_UNREAD:
            sys.stderr.write("portico: the client has stopped reading; giving up on it\n")
            self._lose()
        elif self._size > HIGH_WATER:
            self._server.pause()

    async def close(self) -> None:
        """Let a client that reads have what is left, then close."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._empty.wait(), _LAST_WORDS_S)
        self._loop.remove_writer(self._fd)
        os.set_blocking(self._fd, True)  # a terminal is the shell's again
        os.close(self._fd)

    def _go_on(self) -> None:
        while self._waiting:
            first = self._waiting[0]
            written = self._try(os.write, first)
            if not written:
                return
            self._size -= written
            if written < len(first):
                self._waiting[0] = first[written:]
            else:
                self._waiting.popleft()
        self._loop.remove_writer(self._fd)
        self._empty.set()
        self._server.resume()

    def _try(self, write: Callable[[int, Any], int], data: Any) -> int | None:
        """How much was written; None if nobody is there to read."""
        try:
            return write(self._fd, data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            self._lose()
            return None

    def _lose(self) -> None:
        self._lost = True
        self._waiting.clear()
        self._loop.remove_writer(self._fd)
        self._empty.set()
        self._server.ended()
        self._stop.set()


class _FileWriter:
    """Writes to a regular file, which never makes anyone wait."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    async def open(self, server: StdioServer, stop: asyncio.Event) -> None:
        """Nothing to prepare."""

    def write(self, parts: tuple[bytes, ...]) -> None:
        """Write the parts of one line."""
        data = memoryview(b"".join(parts))
        while data:
            data = data[os.write(self._fd, data) :]

    async def close(self) -> None:
        """Close the file."""
        os.close(self._fd)
