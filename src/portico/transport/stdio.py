"""MCP over standard input and output: one message per line."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from portico.model.context import LOCAL, Context
from portico.model.errors import INTERNAL_ERROR, INVALID_REQUEST, AskError
from portico.model.message import NOTHING, Request, Response
from portico.model.session import Session
from portico.model.version import LATEST_LEGACY, Version
from portico.protocol.codec import error_response
from portico.protocol.inbound import ClientAnswer, Inbound, RefusedMessage, read
from portico.protocol.line_reader import CR, LF, LineReader, one_line
from portico.state.memory import LARGE, map_large_blocks_apart
from portico.state.pending import Pending
from portico.transport.batch import Batch
from portico.transport.client_connection import ClientConnection, Endpoint, shutdown_error

_OPEN, _RESULT, _CLOSE = b'{"jsonrpc":"2.0","id":', b',"result":', b"}\n"
_COPY_LIMIT = 4096
_MAX_PARTS = 64
"""The parts of one write; the system allows 1,024, but many large ones would cost memory."""
MAX_LINE = 4 * 1024 * 1024
MAX_RUNNING = 1000
_TOO_MANY = f"{MAX_RUNNING} calls are already running: try again when some have finished"


class StdioServer:
    """One client on a pair of streams: receives bytes, and writes parts of lines."""

    def __init__(
        self,
        endpoint: Endpoint,
        write: Callable[[tuple[bytes, ...]], None],
        *,
        max_line: int = MAX_LINE,
        data: Any = None,
    ) -> None:
        self._endpoint = endpoint
        self._out = write
        self._lines = LineReader(max_line)
        self._data = data
        self._is_disconnected = False
        self._is_input_closed = False
        self._draining = False
        self._deferred: list[bytes] | None = None
        """During `initialize`, the lines that can only be read after its response."""
        self._unwritten: list[bytes] | None = None
        """While received data is handled, the responses to it so far."""
        self._closed = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self.session = Session(self._send, principal=LOCAL)
        self.session.ask = self.ask
        self.connection = ClientConnection(self.session)

    def received(self, data: bytes) -> None:
        """Handle received data, and send all immediate responses in one write."""
        nested = self._unwritten is not None  # a handler may lead here again
        self._unwritten = self._unwritten or []
        reader = self._lines
        is_whole = data[-1:] == b"\n" and not reader.pending and len(data) <= reader.limit
        try:
            # Lines usually arrive whole.
            for line in data[:-1].split(b"\n") if is_whole else reader.feed(data):
                self.receive_line(line)
        finally:
            if not nested:
                parts, self._unwritten = self._unwritten, None
                if parts:
                    self._out(tuple(parts))

    def _write(self, parts: tuple[bytes, ...]) -> None:
        unwritten = self._unwritten
        if unwritten is None:
            self._out(parts)
            return
        unwritten += parts
        if len(unwritten) >= _MAX_PARTS:
            self._unwritten = []
            self._out(tuple(unwritten))

    def receive_line(self, line: bytes | None) -> None:
        """Handle one line; None means that it was too long."""
        if line is None:
            self._reply(line_too_long(self._lines, self.session.version))
        elif line:
            if len(line) > LARGE:
                map_large_blocks_apart()
            inbound = read(line, self.session.version)
            if type(inbound) is Request:
                self._serve(inbound)
            elif self._deferred is not None and self._can_defer(self._deferred, inbound):
                self._deferred.append(line)
            elif not line.isspace():
                self._receive(inbound)

    def input_closed(self) -> None:
        """Fail all questions: the client closed its input, but still receives responses."""
        self.received(b"\n")  # the last line of a file or a pipe may lack its newline
        self._is_input_closed = True
        self.connection.fail_questions()

    def disconnected(self) -> None:
        """Cancel all calls in flight: the client disconnected."""
        self._is_disconnected = True
        self._closed.set()
        self._writable.set()
        self.connection.close()
        self.session.end()

    async def drain(self, within_s: float) -> None:
        """Accept no new work, end streams, and let running calls finish within this time; answer
        the others with an error."""
        self._draining = True
        self._closed.set()
        try:
            await asyncio.wait_for(self.connection.wait_idle(), within_s)
        except TimeoutError:
            for id in self.connection.abandon():
                self._reply(shutdown_error(id))

    def pause(self) -> None:
        """Make handlers wait before they send: the reader is slow."""
        self._writable.clear()

    def resume(self) -> None:
        """Let handlers send again: the reader has caught up."""
        self._writable.set()

    # The peer, as a handler's context sees it.

    async def notify(self, message: bytes) -> None:
        """Send a notification, after a slow reader has caught up."""
        if not self._writable.is_set():
            await self._writable.wait()
        self._send(message)

    async def ask(self, method: str, params: bytes) -> bytes:
        """Send a question and wait for its answer."""
        if self._is_disconnected or self._is_input_closed:
            raise AskError("the client disconnected")
        question = self.connection.question(method, params)
        self._send(question.message)
        try:
            return await question.answer
        except asyncio.CancelledError:
            self._send(question.cancellation)
            raise

    async def closed(self) -> None:
        """Wait until the client disconnects or a drain begins."""
        await self._closed.wait()

    def _receive(self, inbound: Inbound) -> None:
        if isinstance(inbound, RefusedMessage):
            if not inbound.is_notification:
                self._reply(inbound.response)
        elif isinstance(inbound, ClientAnswer):
            self.connection.settle(inbound)
        elif isinstance(inbound, list):
            batch = Batch(lambda answers: self._send(answers) if answers else None, now=True)
            context = Context(principal=LOCAL, data=self._data, session=self.session, peer=self)
            batch.serve(inbound, self._endpoint, self.connection, context)

    def _serve(self, request: Request) -> None:
        if not request.id and request.method == "notifications/cancelled":
            self.connection.cancel(request)
            return
        if self._draining and request.id:
            self._reply(shutdown_error(request.id))
            return
        connection = self.connection
        if connection.running and (refusal := self._refusal(request)) is not None:
            self._reply(refusal)
            return
        context = Context(principal=LOCAL, data=self._data, session=self.session, peer=self)
        answer = self._endpoint.handle(request, context)
        if type(answer) is Response:
            self._reply(answer)
        elif isinstance(answer, Pending):
            connection.reply_later(request, answer, self._reply)
        elif request.method == "initialize":
            self._deferred = self._deferred or []
            over = self._serve_deferred
            connection.start(request, lambda: self._answer(request, answer), over, now=True)
        else:
            connection.start(request, lambda: self._answer(request, answer), now=True)

    def _refusal(self, request: Request) -> Response | None:
        """Return a refusal if a request cannot run beside those in flight."""
        if len(self.connection.running) >= MAX_RUNNING and not _is_light(request):
            return error_response(request.id, INTERNAL_ERROR, _TOO_MANY) if request.id else NOTHING
        return self.connection.check_duplicate(request)

    def _can_defer(self, deferred: list[bytes], inbound: Inbound) -> bool:
        """True for a message sent before `initialize` was answered, as a shell's pipe does."""
        is_refused = isinstance(inbound, RefusedMessage)
        return is_refused and not self._draining and len(deferred) < MAX_RUNNING

    def _serve_deferred(self) -> None:
        deferred, self._deferred = self._deferred or [], None
        # These arrived before a drain that may have begun since.
        draining, self._draining = self._draining, False
        for line in () if self._is_disconnected else deferred:
            self.receive_line(line)
        self._draining = draining

    async def _answer(self, request: Request, answer: Awaitable[Response]) -> None:
        response = await self.connection.await_answer(answer)
        # The client may reuse the id as soon as it reads the answer.
        self.connection.release_id(request.id)
        self._reply(response)

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

    def _send(self, message: bytes) -> None:
        if not self._is_disconnected:
            self._write((one_line(message), b"\n"))


def _is_light(request: Request) -> bool:
    """True for a request that runs no handler."""
    return request.is_static or request.method == "ping"


def line_too_long(lines: LineReader, version: Version | None) -> Response:
    """Return the error for a line that was too long to keep."""
    from portico.protocol.salvage import id_at_edge  # rarely needed, slow to load

    words = f"the line is longer than {lines.limit} bytes"
    id = id_at_edge(lines.ends)
    return error_response(id, INVALID_REQUEST, words, version=version or LATEST_LEGACY)
