"""The old HTTP+SSE transport (2024-11-05): one stream out at `/sse`, POSTs in at `/messages`."""

import asyncio
import secrets
from urllib.parse import parse_qs

from portico.core.http1.port import ResponseWriter
from portico.core.model.context import Context
from portico.core.model.errors import AskError
from portico.core.model.message import Request, Response
from portico.core.model.session import Session
from portico.core.model.types import Endpoint
from portico.core.protocol.inbound import ClientAnswer, RefusedMessage, read
from portico.core.state.background import Background
from portico.edge.transport.batch import Batch, BatchMembers
from portico.edge.transport.calls_in_flight import CallsInFlight, shutdown_error
from portico.edge.transport.events import EventResponse, Keepalive, event
from portico.edge.transport.http_limits import HttpLimits, HttpLoad
from portico.edge.transport.reply import (
    Reply,
    busy,
    overloaded,
    refusal,
    send_response,
    shutting_down,
)
from portico.edge.transport.sessions import NotificationQueue

_ACCEPTED = Reply(202, b"Accepted", ((b"content-type", b"text/plain"),))


class SsePeer:
    """One client of the old transport: its stream is its session."""

    def __init__(
        self, id: str, principal: str, response: EventResponse, limits: HttpLimits
    ) -> None:
        self.id = id
        self.principal = principal
        self.response = response
        self.notices = NotificationQueue(limits.notices, self.notify)
        self.notices.has_reader = True
        self.session = Session(self.notices.add, id=id, principal=principal)
        self.session.ask = self.ask
        self.calls = CallsInFlight()
        self.over = asyncio.Event()
        self._sending = Background()

    async def notify(self, message: bytes) -> None:
        """Send a message, after a slow reader has caught up."""
        await self.response.event(event(message))

    async def ask(self, method: str, params: bytes) -> bytes:
        """Send a question and wait for its answer."""
        if self.response.closed:
            raise AskError("the client disconnected")
        question = self.calls.question(method, params)
        try:
            await self.notify(question.message)
            return await question.answer
        except asyncio.CancelledError:
            question.answer.cancel()
            self.send_soon(question.cancellation)
            raise

    async def closed(self) -> None:
        """Wait until the client disconnects or a drain begins."""
        await self.over.wait()

    def send_soon(self, message: bytes) -> None:
        """Send a message in the background."""
        self._sending.start(self.notify(message))

    async def drain(self) -> None:
        """End the stream as soon as all calls are answered."""
        self.over.set()
        await self.calls.wait_idle()
        await self.response.end()

    def close(self) -> None:
        """End the session and cancel its calls: the stream is closed."""
        self.over.set()
        self.notices.has_reader = False
        self.calls.close()
        self.response.close()
        self.session.send = lambda _: None
        self.session.end()


class OldSse:
    """Serves clients of the old transport."""

    def __init__(
        self, endpoint: Endpoint, limits: HttpLimits, load: HttpLoad, keepalive: Keepalive
    ) -> None:
        self._endpoint = endpoint
        self._limits = limits
        self._load = load
        self._keepalive = keepalive
        self._peers: dict[str, SsePeer] = {}

    async def get(self, url: str, principal: str, writer: ResponseWriter) -> None:
        """Open a stream, send the URL for POSTs, and keep it open until the client disconnects."""
        if self._load.draining:
            shutting_down().send(writer)
            return
        if not self._load.begin_stream():
            overloaded("too many streams are open").send(writer)
            return
        id = secrets.token_urlsafe(24)
        response = EventResponse(writer, self._keepalive)
        peer = self._peers[id] = SsePeer(id, principal, response, self._limits)
        draining = asyncio.create_task(self._drain(peer))
        try:
            endpoint = f"{url}?session_id={id}".encode()
            await response.event(event(endpoint, name=b"endpoint"))
            await asyncio.wait((response.over,))
        finally:
            draining.cancel()
            del self._peers[id]
            peer.close()
            self._load.end_stream()

    def find(self, query: bytes, principal: str) -> SsePeer | Reply:
        """Return the client that sent a POST, or a refusal."""
        ids = parse_qs(query.decode("latin-1")).get("session_id")
        if not ids:
            return refusal(400, "session_id is missing: open /sse first")
        peer = self._peers.get(ids[0])
        if peer is None or peer.principal != principal:
            return refusal(404, "unknown session: open /sse again")
        return peer

    async def post(
        self, peer: SsePeer, body: bytes, context: Context, writer: ResponseWriter
    ) -> None:
        """Accept a message; every response to a request goes over the stream, even an error.

        Clients of this transport read no other response, and some crash on an HTTP error.
        """
        inbound = read(body, peer.session.version)
        if isinstance(inbound, RefusedMessage) and inbound.response.id in (b"", b"null"):
            send_response(writer, inbound.response, 400)
            return
        _ACCEPTED.send(writer)
        context.session, context.peer = peer.session, peer
        if isinstance(inbound, RefusedMessage):
            await peer.notify(inbound.response.encode())
        elif isinstance(inbound, ClientAnswer):
            peer.calls.settle(inbound)
        elif isinstance(inbound, list):
            self._batch(peer, inbound, context)
        elif inbound.id:
            refused = self._request(peer, inbound, context)
            if refused is not None:
                await peer.notify(refused.encode())
        elif inbound.method == "notifications/cancelled":
            peer.calls.cancel(inbound)
        else:
            await self._endpoint.handle(inbound, context)

    def cancel_all(self) -> None:
        """Cancel every call, because a drain has timed out."""
        for peer in tuple(self._peers.values()):
            peer.calls.close()

    def _batch(self, peer: SsePeer, members: BatchMembers, context: Context) -> None:
        """Answer an array with an array, as one call (2025-03-26)."""
        if self._load.draining or not self._load.begin_call():
            why = shutdown_error(b"null") if self._load.draining else busy(b"null")
            peer.send_soon(why.encode())
            return

        def deliver(answers: bytes) -> None:
            if answers:
                peer.send_soon(answers)
            self._load.end_call()

        Batch(deliver).serve(members, self._endpoint, peer.calls, context)

    def _request(self, peer: SsePeer, request: Request, context: Context) -> Response | None:
        """Start a call, or return its refusal."""
        if self._load.draining:
            return shutdown_error(request.id)
        if not self._load.begin_call():
            return busy(request.id)
        answered = False

        async def work() -> None:
            nonlocal answered
            response = await peer.calls.await_answer(self._endpoint.handle(request, context))
            answered = True
            await peer.notify(response.encode())

        def over() -> None:
            if not answered and self._load.timed_out:
                peer.send_soon(shutdown_error(request.id).encode())
            self._load.end_call()

        refused = peer.calls.start(request, work, over)
        if refused is not None:
            self._load.end_call()
        return refused

    async def _drain(self, peer: SsePeer) -> None:
        await self._load.drain_began.wait()
        await peer.drain()
