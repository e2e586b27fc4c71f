"""The pipes of a worker: MCP over stdio that outlives the process.

The process can be replaced by a fresh one of the same id and on the same pipes. The fresh one
gets the requests that have not begun, and the part of a line that was read; all other input is
still in the pipe. The modern era has no state in a connection that would be lost.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from portico.core.protocol.codec import encode
from portico.core.state.stdout import take_stdout
from portico.edge.transport.pipes import PipeReader, StdioServer, writer_to
from portico.edge.transport.stop_signals import stop_on_signals
from portico.upstream.wires.wire import MAX_MESSAGE

if TYPE_CHECKING:
    from portico.core.model.message import Request
    from portico.core.model.types import Endpoint

_DRAIN_S = 30.0
_RESUME = "--resume"
_WORKER = ("-P", "-m", "portico.library.wasm.worker", _RESUME)


class WorkerPipes:
    """One client on stdin and stdout."""

    def __init__(self, endpoint: "Endpoint", left: bytes = b"") -> None:
        """`left` was read by the process before this one."""
        self.stop = asyncio.Event()
        self._out = take_stdout()
        self._writer = writer_to(self._out)
        self._server = StdioServer(endpoint, self._writer.write, max_line=MAX_MESSAGE)
        self._reader = PipeReader(0, self._received, self._ending(self._server.input_closed))
        self._partial = b""
        self._left = left

    async def serve(self) -> None:
        """Serve until the client disconnects, or `stop` is set."""
        restore = stop_on_signals(self.stop, None)
        self._writer.open(self._server, self._ending(self._server.disconnected))
        self._received(self._left)
        self._reader.open()
        await self.stop.wait()
        restore()
        await self._server.drain(_DRAIN_S)
        self._reader.close()
        self._server.disconnected()
        await self._writer.close()

    def _ending(self, close: Callable[[], None]) -> Callable[[], None]:
        def end() -> None:
            if self._partial:
                self._server.received(self._partial)
            close()
            self.stop.set()

        return end

    def _received(self, data: bytes) -> None:
        """Pass on whole lines: half a line must not be lost with the process."""
        whole, newline, rest = (self._partial + data).rpartition(b"\n")
        self._partial = rest
        if newline:
            self._server.received(whole + newline)

    def pause(self) -> None:
        """Leave all further input in the pipe."""
        self._reader.pause()

    async def replace_process(
        self, unstarted: "Sequence[Request]", environment: Mapping[str, str]
    ) -> NoReturn:
        """Flush all answers, and replace this process by a fresh one."""
        import tempfile  # few workers are replaced

        left = b"".join(map(_line, unstarted)) + self._partial
        os.dup2(self._out, 1)
        await self._writer.close()
        with tempfile.TemporaryFile() as file:
            file.write(left)
            file.seek(0)
            os.set_inheritable(file.fileno(), True)
            os.set_blocking(0, True)
            argv = [sys.executable, *_WORKER, str(file.fileno())]
            os.execve(sys.executable, argv, dict(environment))  # noqa: S606


def left_by_last_worker(argv: Sequence[str]) -> bytes:
    """Return the input that the process before this one has read and not handled."""
    if len(argv) != 2 or argv[0] != _RESUME:
        return b""
    with os.fdopen(int(argv[1]), "rb") as file:
        return file.read()


def _line(request: "Request") -> bytes:
    params = request.params or b"{}"
    method = encode(request.method)
    parts = (b'{"jsonrpc":"2.0","id":', request.id, b',"method":', method, b',"params":', params)
    return b"".join(parts).replace(b"\n", b" ") + b"}\n"
