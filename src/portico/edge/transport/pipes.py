"""Pipes on the event loop, and one client on a pair of them: one message per line."""

import asyncio
import contextlib
import fcntl
import os
import stat
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from portico.core.model.message import Response
from portico.core.model.types import Endpoint
from portico.core.protocol.line_reader import CR, LF, LineReader, one_line
from portico.core.state.report import report
from portico.core.state.watchdog import ACTIVITY
from portico.edge.transport.client_connection import MAX_MESSAGE, Connection, message_too_long

MAX_LINE = MAX_MESSAGE
HIGH_WATER = 1024 * 1024
MAX_UNREAD = 64 * 1024 * 1024
_CHUNK = 64 * 1024
_FLUSH_S = 5.0
_PIPE_SIZE = 1024 * 1024
_OPEN, _RESULT, _CLOSE = b'{"jsonrpc":"2.0","id":', b',"result":', b"}\n"
_COPY_LIMIT = 4096
_MAX_PARTS = 64
"""The parts of one write; the system allows 1,024, but many large ones would cost memory."""


class StdioServer(Connection):
    """One client on a pair of streams: receives bytes, and writes parts of lines."""

    def __init__(
        self,
        endpoint: Endpoint,
        write: Callable[[tuple[bytes, ...]], None],
        *,
        max_line: int = MAX_LINE,
        data: Any = None,
    ) -> None:
        super().__init__(endpoint, self._write_line, data=data, max_message=max_line)
        self._write_out = write
        self._lines = LineReader(max_line)
        self._unwritten: list[bytes] | None = None
        """While received data is handled, the responses to it so far."""

    def received(self, data: bytes) -> None:
        """Handle received data, and send all immediate responses in one write."""
        nested = self._unwritten is not None  # a handler may lead here again
        self._unwritten = self._unwritten or []
        reader = self._lines
        is_whole = data[-1:] == b"\n" and not reader.pending and len(data) <= reader.limit
        try:
            # Lines usually arrive whole.
            for line in data[:-1].split(b"\n") if is_whole else reader.feed(data):
                if line is None:
                    self._reply(message_too_long(reader.ends, reader.limit, self.session.version))
                elif line and not line.isspace():
                    self.receive(line)
        finally:
            if not nested:
                parts, self._unwritten = self._unwritten, None
                if parts:
                    self._write_out(tuple(parts))

    def input_closed(self) -> None:
        """Fail all questions: the client closed its input, but still receives responses."""
        self.received(b"\n")  # the last line of a file or a pipe may lack its newline
        super().input_closed()

    def _reply(self, response: Response) -> None:
        result = response.result
        body = result or response.error
        if not body or self._is_disconnected:
            return
        if LF in body or CR in body:  # bytes of an upstream may contain line breaks
            self._write((one_line(response.encode()), b"\n"))
        elif not result:
            self._write((*response.parts, b"\n"))
        elif len(result) < _COPY_LIMIT:  # a copy is cheaper than more parts
            self._write((b"".join((_OPEN, response.id, _RESULT, result, _CLOSE)),))
        else:
            self._write((_OPEN + response.id + _RESULT, result, _CLOSE))

    def _write_line(self, message: bytes) -> None:
        self._write((message, b"\n"))

    def _write(self, parts: tuple[bytes, ...]) -> None:
        unwritten = self._unwritten
        if unwritten is None:
            self._write_out(parts)
            return
        unwritten += parts
        if len(unwritten) >= _MAX_PARTS:
            self._unwritten = []
            self._write_out(tuple(unwritten))


def _is_pipe(fd: int) -> bool:
    """True for pipes, sockets and terminals: the event loop cannot wait on files or devices."""
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(fd)


class PipeReader:
    """Reads data as it arrives; a regular file, which the event loop cannot wait on, in a thread.

    It does not close its descriptor.
    """

    def __init__(
        self, fd: int, received: Callable[[bytes], object], ended: Callable[[], object]
    ) -> None:
        """`received` may be replaced later; `ended` is called at the end of input."""
        self._fd = fd
        self.received = received
        self._ended = ended
        self._is_open = False
        self._may_read = threading.Event()
        self.failed = False
        """True if reading failed."""

    def open(self) -> None:
        """Start reading."""
        self._loop = asyncio.get_running_loop()
        self._is_open = True
        self._may_read.set()
        if _is_pipe(self._fd):
            os.set_blocking(self._fd, False)
            self._loop.add_reader(self._fd, self._read_available)
        else:
            threading.Thread(target=self._read_file, daemon=True).start()

    def pause(self) -> None:
        """Stop reading until `resume`."""
        if self._is_open and self._may_read.is_set():
            self._may_read.clear()
            self._loop.remove_reader(self._fd)

    def resume(self) -> None:
        """Continue reading."""
        if self._is_open and not self._may_read.is_set():
            self._may_read.set()
            if _is_pipe(self._fd):
                self._loop.add_reader(self._fd, self._read_available)

    def close(self) -> None:
        """Stop reading for good."""
        self._is_open = False
        self._loop.remove_reader(self._fd)
        if self._fd == 0 and _is_pipe(0):
            os.set_blocking(0, True)  # as the shell expects its terminal

    def _read_available(self) -> None:
        try:
            data = os.read(self._fd, _CHUNK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""  # a terminal that was closed
        if ACTIVITY.is_quiet:
            ACTIVITY.note()
        if data:
            self.received(data)
        else:
            self._is_open = False
            self._loop.remove_reader(self._fd)
            self._ended()

    def _read_file(self) -> None:
        with contextlib.suppress(RuntimeError):  # the event loop has closed
            while chunk := self._read_chunk():
                self._loop.call_soon_threadsafe(self._deliver, chunk)
                self._may_read.wait()
            self._loop.call_soon_threadsafe(self._ended)

    def _read_chunk(self) -> bytes:
        try:
            return os.read(self._fd, _CHUNK)
        except OSError as error:  # a failing disk, or a file opened only for writing
            report(f"cannot read requests: {error.strerror}")
            self.failed = True
            return b""

    def _deliver(self, chunk: bytes) -> None:
        self.received(chunk)


class PausableSource(Protocol):
    """The sender of the data, which can pause."""

    def pause(self) -> None:
        """Send as little as possible: the reader is slow."""

    def resume(self) -> None:
        """Send again: the reader has caught up."""


def writer_to(fd: int) -> "Writer":
    """Return a writer to this descriptor."""
    return PipeWriter(fd) if _is_pipe(fd) else FileWriter(fd)


class PipeWriter:
    """Writes without blocking and, as long as the client keeps up, without copying.

    asyncio's own pipe transports join the parts first and read a quarter of a megabyte at a time;
    for a message of a few kilobytes that costs more than everything else.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._waiting: deque[memoryview] = deque()
        self.unwritten = 0
        """The bytes that wait, or were left when the client stopped reading."""
        self.failed = False
        """Always False: a client may stop reading."""
        self._lost = False
        self._empty = asyncio.Event()
        self._empty.set()

    def open(self, source: PausableSource, lost: Callable[[], object]) -> None:
        """Write for this source; `lost` is called if the client stops reading."""
        self._loop = asyncio.get_running_loop()
        self._source, self._on_loss = source, lost
        os.set_blocking(self._fd, False)
        # Room for a few large lists: waiting on a full pipe costs more than the write.
        with contextlib.suppress(AttributeError, OSError):  # Linux only, and pipes only
            fcntl.fcntl(self._fd, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)

    def write(self, parts: tuple[bytes, ...]) -> None:
        """Write the parts of one line, or queue the rest for a slow client."""
        left = 0
        for part in parts:
            left += len(part)
        if not self._waiting and not self._lost:
            try:
                left -= os.writev(self._fd, parts)
            except (BlockingIOError, InterruptedError):
                pass
            except OSError:
                self._lose()
            if not left:
                return
        self._queue(parts, left)

    def _queue(self, parts: tuple[bytes, ...], left: int) -> None:
        self.unwritten += left
        if self._lost:
            return
        if not self._waiting:
            self._loop.add_writer(self._fd, self._write_waiting)
            self._empty.clear()
        self._waiting.append(memoryview(b"".join(parts))[-left:])
        if self.unwritten > MAX_UNREAD:
            report("the client stopped reading; disconnecting it")
            self._lose()
        elif self.unwritten > HIGH_WATER:
            self._source.pause()

    async def close(self) -> None:
        """Flush to a client that still reads, then close."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._empty.wait(), _FLUSH_S)
        self._loop.remove_writer(self._fd)
        os.set_blocking(self._fd, True)  # as the shell expects its terminal
        os.close(self._fd)

    def _write_waiting(self) -> None:
        while self._waiting:
            first = self._waiting[0]
            written = self._write_some(first)
            if not written:
                return
            self.unwritten -= written
            if written < len(first):
                self._waiting[0] = first[written:]
            else:
                self._waiting.popleft()
        self._loop.remove_writer(self._fd)
        self._empty.set()
        self._source.resume()

    def _write_some(self, data: memoryview) -> int:
        """Return how many bytes were written; 0 if the client cannot take any."""
        try:
            return os.write(self._fd, data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            self._lose()
            return 0

    def drop(self) -> None:
        """Discard unread data, and write no more."""
        self._lost = True
        self._waiting.clear()
        self._loop.remove_writer(self._fd)
        self._empty.set()

    def _lose(self) -> None:
        self.drop()
        self._on_loss()


class FileWriter:
    """Writes to a regular file, which never blocks for a reader."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.failed = False
        """True after a write failed; later ones are skipped."""

    def open(self, source: PausableSource, lost: Callable[[], object]) -> None:
        """Start writing; `lost` is called if a write fails."""
        self._on_loss = lost

    def write(self, parts: tuple[bytes, ...]) -> None:
        """Write the parts of one line."""
        if self.failed:
            return
        data = memoryview(b"".join(parts))
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError as error:
            report(f"cannot write responses: {error.strerror}")
            self.failed = True
            self._on_loss()

    async def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


Writer = PipeWriter | FileWriter
