"""One client, message by message: the part that all connected transports share."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from portico.core.model.context import LOCAL, Context
from portico.core.model.errors import INTERNAL_ERROR, INVALID_REQUEST, AskError
from portico.core.model.message import NOTHING, Request, Response
from portico.core.model.session import Session
from portico.core.model.types import Endpoint
from portico.core.model.version import LATEST_LEGACY, Version
from portico.core.protocol.codec import error_response
from portico.core.protocol.inbound import ClientAnswer, Inbound, RefusedMessage, read
from portico.core.protocol.line_reader import one_line
from portico.core.state.memory import LARGE, map_large_blocks_apart
from portico.core.state.pending import Pending
from portico.edge.transport.batch import Batch
from portico.edge.transport.calls_in_flight import CallsInFlight, shutdown_error

MAX_MESSAGE = 4 * 1024 * 1024
MAX_RUNNING = 1000
_TOO_MANY = f"{MAX_RUNNING} calls are already running: try again when some have finished"


class Connection:
    """The connection of one client: takes the client's messages and sends it ours.

    A transport creates one for each client. All methods belong to the thread of the event loop.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        send: Callable[[bytes], object],
        *,
        principal: str = LOCAL,
        data: Any = None,
        max_message: int = MAX_MESSAGE,
    ) -> None:
        """`send` gets each message for the client, as JSON without a line break, and does not
        wait. `principal` and `data` are for the context of each request."""
        self.endpoint = endpoint
        """The handler of its requests, which may be replaced."""
        self._out = send
        self._principal = principal
        self._data = data
        self._max_message = max_message
        self._large = min(LARGE, max_message)
        self._is_disconnected = False
        self._is_input_closed = False
        self._draining = False
        self._deferred: list[bytes] | None = None
        """During `initialize`, the messages that can only be read after its response."""
        self._closed = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self.session = Session(self._send, principal=principal)
        self.session.ask = self.ask
        self.calls = CallsInFlight()

    def receive(self, message: bytes | str) -> None:
        """Handle one message of the client; after `disconnected`, ignore it."""
        if self._is_disconnected:
            return
        data = message if type(message) is bytes else _to_bytes(message)
        if len(data) > self._large and self._is_refused_for_size(data):
            return
        inbound = read(data, self.session.version)
        if type(inbound) is Request:
            self._serve(inbound)
        elif self._deferred is not None and self._can_defer(self._deferred, inbound):
            self._deferred.append(data)
        else:
            self._receive(inbound)

    def input_closed(self) -> None:
        """Fail all questions: the client sends nothing more, but still receives responses."""
        self._is_input_closed = True
        self.calls.fail_questions()

    def disconnected(self) -> None:
        """Cancel all calls in flight: the client disconnected. Nothing is sent from now on."""
        self._is_disconnected = True
        self._closed.set()
        self._writable.set()
        self.calls.close()
        self.session.end()

    async def drain(self, within_s: float) -> None:
        """Accept no new work, end streams, and let running calls finish within this time; answer
        the others with an error."""
        self._draining = True
        self._closed.set()
        try:
            await asyncio.wait_for(self.calls.wait_idle(), within_s)
        except TimeoutError:
            for id in self.calls.abandon():
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
        question = self.calls.question(method, params)
        self._send(question.message)
        try:
            return await question.answer
        except asyncio.CancelledError:
            self._send(question.cancellation)
            raise

    async def closed(self) -> None:
        """Wait until the client disconnects or a drain begins."""
        await self._closed.wait()

    def _is_refused_for_size(self, data: bytes) -> bool:
        """Send the refusal of a message over the limit; return False for one within it."""
        map_large_blocks_apart()
        if len(data) <= self._max_message:
            return False
        self._reply(message_too_long(data, self._max_message, self.session.version))
        return True

    def _receive(self, inbound: Inbound) -> None:
        if isinstance(inbound, RefusedMessage):
            if not inbound.is_notification:
                self._reply(inbound.response)
        elif isinstance(inbound, ClientAnswer):
            self.calls.settle(inbound)
        elif isinstance(inbound, list):
            batch = Batch(lambda answers: self._send(answers) if answers else None, now=True)
            who, data = self._principal, self._data
            context = Context(principal=who, data=data, session=self.session, peer=self)
            batch.serve(inbound, self.endpoint, self.calls, context)

    def _serve(self, request: Request) -> None:
        if not request.id and request.method == "notifications/cancelled":
            self.calls.cancel(request)
            return
        if self._draining and request.id:
            self._reply(shutdown_error(request.id))
            return
        calls = self.calls
        if calls.running and (refusal := self._refusal(request)) is not None:
            self._reply(refusal)
            return
        who, data = self._principal, self._data
        context = Context(principal=who, data=data, session=self.session, peer=self)
        answer = self.endpoint.handle(request, context)
        if type(answer) is Response:
            self._reply(answer)
        elif isinstance(answer, Pending):
            calls.reply_later(request, answer, self._reply)
        elif request.method == "initialize":
            self._deferred = self._deferred or []
            over = self._serve_deferred
            calls.start(request, lambda: self._answer(request, answer), over, now=True)
        else:
            calls.start(request, lambda: self._answer(request, answer), now=True)

    def _refusal(self, request: Request) -> Response | None:
        """Return a refusal if a request cannot run beside those in flight."""
        if len(self.calls.running) >= MAX_RUNNING and not _is_light(request):
            return error_response(request.id, INTERNAL_ERROR, _TOO_MANY) if request.id else NOTHING
        return self.calls.check_duplicate(request)

    def _can_defer(self, deferred: list[bytes], inbound: Inbound) -> bool:
        """True for a message sent before `initialize` was answered, as a shell's pipe does."""
        is_refused = isinstance(inbound, RefusedMessage)
        return is_refused and not self._draining and len(deferred) < MAX_RUNNING

    def _serve_deferred(self) -> None:
        deferred, self._deferred = self._deferred or [], None
        # These arrived before a drain that may have begun since.
        draining, self._draining = self._draining, False
        for message in deferred:
            self.receive(message)
        self._draining = draining

    async def _answer(self, request: Request, answer: Awaitable[Response]) -> None:
        response = await self.calls.await_answer(answer)
        # The client may reuse the id as soon as it reads the answer.
        self.calls.release_id(request.id)
        self._reply(response)

    def _reply(self, response: Response) -> None:
        if not response.is_nothing:
            self._send(response.encode())

    def _send(self, message: bytes) -> None:
        if not self._is_disconnected:
            self._out(one_line(message))  # bytes of an upstream may contain line breaks


def message_too_long(data: bytes, limit: int, version: Version | None) -> Response:
    """Return the error for a message over the limit; its first and last bytes may have its id."""
    from portico.core.protocol.salvage import id_at_edge  # rarely needed, slow to load

    why = f"the message is longer than {limit} bytes"
    return error_response(id_at_edge(data), INVALID_REQUEST, why, version=version or LATEST_LEGACY)


def _to_bytes(message: bytes | str) -> bytes:
    if isinstance(message, str):
        # A lone surrogate makes bytes that are not UTF-8, which the parser rejects.
        return message.encode(errors="surrogatepass")
    return bytes(memoryview(message))


def _is_light(request: Request) -> bool:
    """True for a request that runs no handler."""
    return request.is_static or request.method == "ping"
