"""Legacy streamable HTTP: sessions, resumable streams, and questions to the client."""

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any

from portico.core.http1.port import ResponseWriter
from portico.core.model.context import Context
from portico.core.model.message import Request, Response
from portico.core.model.methods import INITIALIZED
from portico.core.model.types import Endpoint
from portico.core.protocol.inbound import ClientAnswer, RefusedMessage
from portico.core.state.background import Background
from portico.edge.transport.batch import Batch, BatchMembers
from portico.edge.transport.bodies import IncomingBody
from portico.edge.transport.events import EventResponse, Keepalive
from portico.edge.transport.http_limits import HttpLimits, HttpLoad
from portico.edge.transport.reply import Reply, overloaded, refusal, send_response, shutting_down
from portico.edge.transport.resumable_stream import ResumableStream, parse_event_id
from portico.edge.transport.session_call import SessionCall, status
from portico.edge.transport.sessions import HttpSession, Sessions

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
        self._carrying = Background()

    async def initialize(self, request: Request, context: Context, writer: ResponseWriter) -> None:
        """Begin a session, and keep it if the handshake succeeds."""
        if not self.sessions.make_room():
            overloaded("too many sessions are open", request.id).send(writer)
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
            send_response(writer, response, 200, (header,))
        else:
            send_response(writer, response, status(response))

    def post(
        self,
        session: HttpSession,
        message: Request | ClientAnswer | BatchMembers,
        context: Context,
        body: IncomingBody,
    ) -> Coroutine[Any, Any, None] | None:
        """Handle a POST that is not a call; a coroutine that is returned does the rest, and the
        end of a batch releases the body."""
        context.session = session.session
        if not isinstance(message, Request) or message.method != INITIALIZED:
            session.is_used = True
        if isinstance(message, list):
            self._batch(session, message, context, body)
            return None
        if isinstance(message, ClientAnswer):
            session.calls.settle(message)
        elif message.method == "notifications/cancelled":
            session.calls.cancel(message)
        else:
            return self._notify(self._endpoint.handle(message, context), body.writer)
        _ACCEPTED.send(body.writer)
        body.release()
        return None

    async def _notify(self, handled: Awaitable[Response], writer: ResponseWriter) -> None:
        await handled
        _ACCEPTED.send(writer)

    def begin(self, session: HttpSession, id: bytes, writer: ResponseWriter) -> SessionCall | None:
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
        self, session: HttpSession, last_event: bytes | None, writer: ResponseWriter
    ) -> None:
        """Open a stream for unsolicited messages, or resume the one that an event id names."""
        session.is_used = True
        if last_event is None and self._load.draining:
            shutting_down().send(writer)
            return
        if not self._load.begin_stream():
            overloaded("too many streams are open").send(writer)
            return
        try:
            if last_event is None:
                await self._listen(session, writer)
            else:
                await self._resume(session, last_event, writer)
        finally:
            self._load.end_stream()

    def delete(self, session: HttpSession, writer: ResponseWriter) -> None:
        """End a session at its client's request."""
        self.sessions.end(session)
        Reply(204).send(writer)

    async def _listen(self, session: HttpSession, writer: ResponseWriter) -> None:
        stream = session.open_stream(listens=True)
        if stream is None:
            overloaded("too many streams are open in this session").send(writer)
            return
        response = EventResponse(writer, self._keepalive, prime=stream.prime)
        await self._carry(session, stream, response, opens=True)

    async def _resume(
        self, session: HttpSession, last_event: bytes, writer: ResponseWriter
    ) -> None:
        place = parse_event_id(last_event)
        stream = session.streams.get(place[0]) if place is not None else None
        if place is None or stream is None:
            refusal(400, "no events are kept for this Last-Event-ID").send(writer)
            return
        response = EventResponse(writer, self._keepalive)
        await self._carry(session, stream, response, opens=True, after=place[1])

    def cancel_all(self) -> None:
        """Cancel every call, because a drain has timed out."""
        for session in self.sessions:
            session.calls.close()

    def _batch(
        self, session: HttpSession, members: BatchMembers, context: Context, body: IncomingBody
    ) -> None:
        """Answer an array with an array (2025-03-26), or with 202 if it has no requests."""
        waiting = any(
            isinstance(m, RefusedMessage) or (isinstance(m, Request) and m.id) for m in members
        )
        writer = body.writer
        is_refused = waiting and self._load.draining
        call = None if is_refused else self.begin(session, b"", writer)
        if call is None:
            why = shutting_down() if is_refused else overloaded("too many calls are running")
            why.send(writer)
            body.release()
            return
        call.body = body
        context.peer = call
        if waiting:
            writer.call = call
        else:
            call.on_disconnect()  # its response is written here
            _ACCEPTED.send(writer)
        batch = Batch(lambda answers: call.finish((answers,) if answers else ()))
        batch.serve(members, self._endpoint, session.calls, context)

    def _attach_stream(
        self, session: HttpSession, stream: ResumableStream, writer: ResponseWriter, opens: bool
    ) -> None:
        """Let the response of a call that began without a stream carry one."""
        response = EventResponse(writer, self._keepalive, prime=stream.prime)
        stream.begin(response, known=opens)
        self._carrying.start(self._carry(session, stream, response, opens=opens, counted=True))

    async def _carry(
        self,
        session: HttpSession,
        stream: ResumableStream,
        response: EventResponse,
        *,
        opens: bool,
        after: int = 0,
        counted: bool = False,
    ) -> None:
        """Let a response carry the stream until either ends or the client disconnects.

        "Disconnection SHOULD NOT be interpreted as the client cancelling its request."
        """
        session.open_requests += not counted
        try:
            if stream.response is not response:
                await stream.carry(response, after)
            if opens:
                response.open()
            if stream.listens:
                session.listen(stream)
            await asyncio.wait((stream.over, response.over), return_when=asyncio.FIRST_COMPLETED)
            if response.abandoned:
                await response.end()
            elif not response.ended:
                await stream.finish(response)
        finally:
            response.close()
            stream.detach(response)
            session.open_requests -= 1
            session.stop_listening(stream)
            session.close_if_finished(stream)
