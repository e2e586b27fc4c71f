"""Modern calls: one POST each; a disconnect cancels (2026-07-28, streamable HTTP)."""

from collections.abc import Awaitable

from portico.core.http1.port import ResponseWriter
from portico.core.model.errors import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
    AskError,
)
from portico.core.model.message import Response
from portico.core.state.pending import CancellableWork
from portico.edge.transport.bodies import IncomingBody
from portico.edge.transport.calls_in_flight import reply_with, shutdown_error
from portico.edge.transport.events import COMMENT, EVENT_STREAM, Keepalive, event
from portico.edge.transport.http_limits import HttpLoad

STATUS = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    METHOD_NOT_FOUND: 404,
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
}
"""The HTTP status of a response by its error code; 200 for all others."""

_OPEN, _RESULT = b'{"jsonrpc":"2.0","id":', b',"result":'


class ModernCall:
    """One running call, and the peer that reaches its client: the response to its POST."""

    listens = False
    """True for `subscriptions/listen`, which counts as a stream."""

    def __init__(
        self, writer: ResponseWriter, id: bytes, load: HttpLoad, keepalive: Keepalive
    ) -> None:
        self._running: CancellableWork | None = None
        self._writer = writer
        self._id = id
        self._load = load
        self._slot = keepalive.add(self)
        self._is_stream = False
        self._quiet = False
        self._over = False
        self.body: IncomingBody | None = None
        """The body of the request, which is released at the end."""

    def open(self) -> None:
        """Become a stream of events."""
        self._is_stream = True
        self._writer.begin_stream(EVENT_STREAM)

    def run(self, answer: Awaitable[Response]) -> None:
        """Reply with this answer when it arrives."""
        self._load.tasks.add(self)
        running = reply_with(answer, self.reply)
        self._running = None if self._over else running

    def release(self) -> None:
        """Stop counting a call that is answered already, or cannot be."""
        self._end()

    # The peer, as the endpoint sees it.

    async def notify(self, message: bytes) -> None:
        """Send a notification, after a slow reader has caught up."""
        await self._writer.wait_writable()
        self._send_event(event(message))

    async def ask(self, method: str, params: bytes) -> bytes:
        """Refuse: "the server MUST NOT send independent JSON-RPC requests on this stream"."""
        raise AskError(f"cannot send {method} to a modern client: return input_required instead")

    async def closed(self) -> None:
        """Wait until a drain begins; a disconnect before that cancels the call."""
        await self._load.drain_began.wait()

    def reply(self, response: Response) -> None:
        """Send the response: as an event if this is a stream, else as JSON."""
        if self._over:
            return
        self._end()
        if self._is_stream:
            self._writer.send_chunk(event(response.encode()), last=True)
        else:
            result = response.result
            parts = (_OPEN, response.id, _RESULT, result, b"}") if result else response.parts
            self._writer.answer(STATUS.get(response.code, 200), parts)

    def on_disconnect(self) -> None:
        """Cancel the call: a disconnect "MUST be treated by the server as cancellation"."""
        if not self._over:
            running = self._running
            self._end()
            if running is not None:
                running.cancel()

    def cancel(self) -> None:
        """Cancel the call because a drain has timed out."""
        if self._running is not None:
            self._running.cancel()
        self.reply(shutdown_error(self._id))

    def send_keepalive_if_quiet(self) -> None:
        """Send a comment if nothing was sent since the last tick."""
        if self._quiet and not self._writer.is_slow:
            self._send_event(COMMENT)
        self._quiet = not self._quiet

    def _send_event(self, frame: bytes) -> None:
        if self._over:
            return
        if not self._is_stream:
            self.open()
        self._quiet = False
        self._writer.send_chunk(frame)

    def _end(self) -> None:
        self._over = True
        self._running = None  # breaks a reference cycle
        self._slot.discard(self)
        load = self._load
        load.tasks.discard(self)
        if self.body is not None:
            self.body.release()
        if self.listens:
            load.end_stream()
        else:
            load.end_call()
