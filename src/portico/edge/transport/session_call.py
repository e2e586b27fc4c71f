"""A legacy call over HTTP, with a stream of events only if it needs one."""

import asyncio
from collections.abc import Awaitable, Callable

from portico.core.http1.port import ResponseWriter
from portico.core.model.errors import INVALID_REQUEST, PARSE_ERROR, AskError
from portico.core.model.message import NOTHING, Response
from portico.core.model.version import Version
from portico.core.state.pending import CancellableWork
from portico.edge.transport.bodies import IncomingBody
from portico.edge.transport.calls_in_flight import reply_with, shutdown_error
from portico.edge.transport.events import Keepalive
from portico.edge.transport.http_limits import HttpLoad
from portico.edge.transport.resumable_stream import ResumableStream
from portico.edge.transport.sessions import HttpSession, ask_on

AttachStream = Callable[[HttpSession, ResumableStream, ResponseWriter, bool], None]
"""Lets the response of a writer carry a stream; True opens it at once."""


class SessionCall:
    """One running call or batch. Its stream is created for the first message before the response,
    or when its client disconnects; until then it only has a number, and cannot be resumed."""

    def __init__(
        self,
        session: HttpSession,
        number: int,
        id: bytes,
        writer: ResponseWriter,
        load: HttpLoad,
        keepalive: Keepalive,
        attach_stream: AttachStream,
    ) -> None:
        self._session = session
        self._number = number
        self._id = id
        self._writer: ResponseWriter | None = writer
        self._load = load
        self._attach_stream = attach_stream
        self._running: CancellableWork | None = None
        self._stream: ResumableStream | None = None
        self._quiet = False
        self._is_cancelled = False
        self._over = False
        self.body: IncomingBody | None = None
        """The body of the request, which is released at the end."""
        self._slot = keepalive.add(self)
        session.open_requests += 1

    def open(self) -> None:
        """Become a stream of events."""
        self._ensure_stream(opens=True)

    def run(self, answer: Awaitable[Response]) -> None:
        """Reply with this answer when it arrives."""
        self._session.calls.register(self._id, self)
        running = reply_with(answer, self._on_answer)
        self._running = None if self._over else running

    def _on_answer(self, response: Response) -> None:
        if not self._is_cancelled:  # a handler may ignore its cancellation
            self._session.calls.release_id(self._id)
            self.reply(response)

    def release(self) -> None:
        """Stop counting a call that is answered already, or cannot be."""
        self._end(used=False)

    # The peer, as the endpoint sees it.

    async def notify(self, message: bytes) -> None:
        """Send a notification, after a slow reader has caught up."""
        if not self._is_finished:
            await self._ensure_stream().send(message)

    async def ask(self, method: str, params: bytes) -> bytes:
        """Send a question and wait for its answer."""
        session = self._session
        if session.is_closed or self._is_finished:
            raise AskError("the client disconnected")
        return await ask_on(self._ensure_stream(), session.calls, method, params)

    async def closed(self) -> None:
        """Wait until the session ends or a drain begins; a lost connection is neither."""
        await self._session.over.wait()

    async def close_stream(self) -> None:
        """End the response, not the stream: the client resumes it for the rest (SEP-1699).

        Does nothing for clients before 2025-11-25, which would not resume it.
        """
        if self._session.version >= Version.V2025_11_25 and not self._is_finished:
            response = self._ensure_stream().response
            if response is not None:
                await response.end()

    def reply(self, response: Response) -> None:
        """Send the response; a cancelled call has an empty one (cancellation)."""
        if response.result:
            self.finish(response.parts)
        else:
            self.finish(() if response.is_nothing else response.parts, status(response))

    def finish(self, parts: tuple[bytes, ...], status: int = 200) -> None:
        """Send these parts: as an event if there is a stream, else as JSON."""
        if self._over:
            return
        stream = self._stream if parts else self._ensure_stream()
        if stream is not None:
            stream.complete(b"".join(parts), status)
        self._end()
        if stream is not None:
            self._session.close_if_finished(stream)
        elif self._writer is not None:
            self._writer.answer(status, parts)

    def on_disconnect(self) -> None:
        """Continue the call without its client, and keep its messages on its stream.

        "Disconnection SHOULD NOT be interpreted as the client cancelling its request."
        """
        if not self._over and self._stream is None:
            self._writer = None
            self._ensure_stream()
            self._session.open_requests -= 1

    def cancel(self) -> None:
        """Cancel the call, for its client or for a drain that has timed out."""
        self._is_cancelled = True
        running = self._running
        if running is not None:
            running.cancel()
        if isinstance(running, asyncio.Task):
            running.add_done_callback(lambda _: self._stopped())  # it may still send messages
        else:
            self._stopped()

    def _stopped(self) -> None:
        self.reply(shutdown_error(self._id) if self._load.timed_out else NOTHING)

    def send_keepalive_if_quiet(self) -> None:
        """Send a comment if nothing was sent since the last tick."""
        if self._quiet:
            response = self._ensure_stream().response
            if response is not None:
                response.send_keepalive()
        self._quiet = not self._quiet

    def _ensure_stream(self, opens: bool = False) -> ResumableStream:
        """Return the call's stream, and create it if necessary."""
        stream = self._stream
        if stream is None:
            self._slot.discard(self)
            stream = self._stream = self._session.open_reserved(self._number)
            if self._writer is not None:
                self._attach_stream(self._session, stream, self._writer, opens)
        return stream

    @property
    def _is_finished(self) -> bool:
        """True if the call has ended without a stream."""
        return self._over and self._stream is None

    def _end(self, used: bool = True) -> None:
        self._over = True
        self._running = None
        self._slot.discard(self)
        if self.body is not None:
            self.body.release()
        if self._stream is None:
            self._session.release(used)
            self._session.open_requests -= 1
        self._load.end_call()


def status(response: Response) -> int:
    """Return the HTTP status of a legacy response."""
    # 404 would mean that the session has ended, so all other errors have 200.
    return 400 if response.code in (PARSE_ERROR, INVALID_REQUEST) else 200
