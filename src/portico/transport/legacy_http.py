"""Legacy streamable HTTP: sessions, resumable streams, and questions to the client."""

import asyncio
from collections.abc import Callable

from portico.model.context import Context
from portico.model.message import Request, Response
from portico.model.methods import INITIALIZED
from portico.model.types import Endpoint
from portico.protocol.inbound import ClientAnswer, RefusedMessage
from portico.transport.asgi import (
    ClientPresence,
    Receive,
    Reply,
    Scope,
    Send,
    overloaded,
    refusal,
    send_reply,
    send_response,
    shutting_down,
)
from portico.transport.batch import Batch, BatchMembers
from portico.transport.events import EventResponse, Keepalive
from portico.transport.http_limits import HttpLimits, HttpLoad
from portico.transport.response_writer import AsgiResponseWriter, CallWriter
from portico.transport.resumable_stream import ResumableStream, parse_event_id
from portico.transport.session_call import SessionCall, status
from portico.transport.sessions import HttpSession, Sessions

SESSION_HEADER = b"mcp-session-id"
_ACCEPTED = Reply(202)


class LegacyHttp:
    """Serves legacy clients at `/mcp`."""

    def __init__(
        self, endpoint: Endpoint, limits: HttpLimits, load: HttpLoad, keepalive: Keepalive
    ) -> None:
        self._endpoint = endpoint
        self._limits = limits
        self._load = load
        self._keepalive = keepalive
        self.sessions = Sessions(limits)

    async def initialize(self, request: Request, context: Context, send: Send) -> None:
        """Begin a session, and keep it if the handshake succeeds."""
        if not self.sessions.make_room():
            await send_reply(send, overloaded("too many sessions are open", request.id))
            return
        session = self.sessions.create(context.principal)
        context.session = session.session
        response: Response | None = None
        try:
            response = await self._endpoint.handle(request, context)
        finally:
            if response is None or not response.result:
                self.sessions.end(session)  # an upstream may have been started for it
        if response.result:
            self.sessions.handshake_done(session)
            header = (SESSION_HEADER, session.id.encode())
            await send_response(send, response, 200, (header,))
        else:
            await send_response(send, response, status(response))

    async def post(
        self,
        session: HttpSession,
        message: Request | ClientAnswer | BatchMembers,
        context: Context,
        writer: AsgiResponseWriter,
        send: Send,
    ) -> None:
        """Handle a POST that is not a call."""
        context.session = session.session
        if not isinstance(message, Request) or message.method != INITIALIZED:
            session.is_used = True
        if isinstance(message, list):
            await self._batch(session, message, context, writer, send)
            return
        if isinstance(message, ClientAnswer):
            session.calls.settle(message)
        elif message.method == "notifications/cancelled":
            session.calls.cancel(message)
        else:
            await self._endpoint.handle(message, context)
        await send_reply(send, _ACCEPTED)

    def begin(self, session: HttpSession, id: bytes, writer: CallWriter) -> SessionCall | None:
        """Begin a call or a batch; return None if a limit is reached."""
        if not self._load.begin_call():
            return None
        number = session.reserve()
        if not number:
            self._load.end_call()
            return None
        load, keepalive = self._load, self._keepalive
        return SessionCall(session, number, id, writer, load, keepalive, self._attach_stream)

    async def get(
        self, session: HttpSession, last_event: bytes | None, client: ClientPresence, send: Send
    ) -> None:
        """Open a stream for unsolicited messages, or resume the one that an event id names."""
        session.is_used = True
        if last_event is None and self._load.draining:
            await send_reply(send, shutting_down())
            return
        if not self._load.begin_stream():
            await send_reply(send, overloaded("too many streams are open"))
            return
        try:
            if last_event is None:
                await self._listen(session, client, send)
            else:
                await self._resume(session, last_event, client, send)
        finally:
            self._load.end_stream()

    async def delete(self, session: HttpSession, send: Send) -> None:
        """End a session at its client's request."""
        self.sessions.end(session)
        await send_reply(send, Reply(204))

    async def _listen(self, session: HttpSession, client: ClientPresence, send: Send) -> None:
        stream = session.open_stream(listens=True)
        if stream is None:
            await send_reply(send, overloaded("too many streams are open in this session"))
            return
        response = self._response(send, stream.prime)
        await self._carry(session, stream, response, client, opens=True)

    async def _resume(
        self, session: HttpSession, last_event: bytes, client: ClientPresence, send: Send
    ) -> None:
        place = parse_event_id(last_event)
        stream = session.streams.get(place[0]) if place is not None else None
        if place is None or stream is None:
            await send_reply(send, refusal(400, "no events are kept for this Last-Event-ID"))
            return
        response = self._response(send)
        await self._carry(session, stream, response, client, opens=True, after=place[1])

    def cancel_all(self) -> None:
        """Cancel every call, because a drain has timed out."""
        for session in self.sessions:
            session.calls.close()

    async def _batch(
        self,
        session: HttpSession,
        members: BatchMembers,
        context: Context,
        writer: AsgiResponseWriter,
        send: Send,
    ) -> None:
        """Answer an array with an array (2025-03-26), or with 202 if it has no requests."""
        waiting = any(
            isinstance(m, RefusedMessage) or (isinstance(m, Request) and m.id) for m in members
        )
        if waiting and self._load.draining:
            await send_reply(send, shutting_down())
            return
        call = self.begin(session, b"", writer)
        if call is None:
            await send_reply(send, overloaded("too many calls are running"))
            return
        writer.call = context.peer = call
        if not waiting:
            call.on_disconnect()  # its response is written here
        batch = Batch(lambda answers: call.finish((answers,) if answers else ()))
        batch.serve(members, self._endpoint, session.calls, context)
        if waiting:
            await writer.send_all()
        else:
            await send_reply(send, _ACCEPTED)

    def _attach_stream(
        self, session: HttpSession, stream: ResumableStream, writer: CallWriter, opens: bool
    ) -> None:
        """Let an ASGI response carry the stream of a call that began without one."""

        async def respond(scope: Scope, receive: Receive, send: Send) -> None:
            session.open_requests -= 1  # `_carry` counts it from now on
            await self._carry(
                session, stream, response, ClientPresence(scope, receive), opens=opens
            )

        response = self._response(writer.hand_over(respond), stream.prime)
        stream.begin(response, known=opens)

    def _response(self, send: Send, prime: Callable[[], bytes] | None = None) -> EventResponse:
        return EventResponse(send, self._keepalive, prime=prime, can_be_abandoned=True)

    async def _carry(
        self,
        session: HttpSession,
        stream: ResumableStream,
        response: EventResponse,
        client: ClientPresence,
        *,
        opens: bool,
        after: int = 0,
    ) -> None:
        """Let a response carry the stream until either ends or the client disconnects.

        "Disconnection SHOULD NOT be interpreted as the client cancelling its request."
        """
        # Not by a callback: it would miss a client that has just disconnected.
        disconnect = asyncio.create_task(client.wait_disconnected())
        ending: asyncio.Task[None] | None = None
        session.open_requests += 1
        try:
            if stream.response is not response:
                await stream.carry(response, after)
            if opens:
                await response.open()
            if stream.listens:
                session.listen(stream)
            ends = (disconnect, stream.over, response.over)
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not disconnect.done() and not response.ended:
                last = response.end() if response.abandoned else stream.finish(response)
                ending = asyncio.create_task(last)
                await asyncio.wait((disconnect, ending), return_when=asyncio.FIRST_COMPLETED)
        finally:
            disconnect.cancel()
            if ending is not None:
                ending.cancel()
            response.close()
            stream.detach(response)
            session.open_requests -= 1
            session.stop_listening(stream)
            session.close_if_finished(stream)
