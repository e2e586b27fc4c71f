"""Legacy streamable HTTP: sessions, streams that can be resumed, and questions to the client."""

import asyncio
from collections.abc import Callable

from portico.model.context import Context
from portico.model.errors import AskError
from portico.model.message import Request, Response
from portico.model.types import Answer
from portico.model.version import Version
from portico.protocol.inbound import Answer as ClientAnswer
from portico.protocol.inbound import Refused
from portico.state.pending import discard
from portico.transport.asgi import (
    Client,
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
from portico.transport.batch import Batch
from portico.transport.connection import Endpoint, stopped
from portico.transport.events import Exchange, Pulse
from portico.transport.limits import Limits, Load
from portico.transport.replay import Stream, parse_event_id
from portico.transport.sessioncall import SessionCall, status
from portico.transport.sessions import HttpSession, Sessions, ask_on
from portico.transport.swift import Line

SESSION_HEADER = b"mcp-session-id"
INITIALIZED = "notifications/initialized"
_ACCEPTED = Reply(202)
_GONE = refusal(404, "no such session: it has ended, or never was; begin with initialize")
_MISSING = refusal(400, "Mcp-Session-Id is missing: begin with initialize")


class LegacyPeer:
    """The way back to a legacy asker: the stream of its own request."""

    def __init__(self, session: HttpSession, stream: Stream) -> None:
        self._session = session
        self._stream = stream

    async def notify(self, message: bytes) -> None:
        """Send a notification; waits while the reader is slow."""
        await self._stream.say(message)

    async def ask(self, method: str, params: bytes) -> bytes:
        """Send a question and wait for its answer."""
        if self._session.is_closed:
            raise AskError("the client is gone")
        return await ask_on(self._stream, self._session.connection, method, params)

    async def closed(self) -> None:
        """Wait until the session ends or we drain; a dropped connection is neither."""
        await self._session.over.wait()

    async def close_stream(self) -> None:
        """End the response, not the stream: the client comes back for the rest (SEP-1699).

        Does nothing for clients before 2025-11-25, which would not come back.
        """
        exchange = self._stream.exchange
        if exchange is not None and self._session.version >= Version.V2025_11_25:
            await exchange.end()


class Legacy:
    """Answers legacy clients of `/mcp`."""

    def __init__(self, endpoint: Endpoint, limits: Limits, load: Load, pulse: Pulse) -> None:
        self._endpoint = endpoint
        self._limits = limits
        self._load = load
        self._pulse = pulse
        self.sessions = Sessions(limits)

    async def initialize(self, request: Request, context: Context, send: Send) -> None:
        """Begin a session, which lasts if the handshake succeeds."""
        if self._load.draining:
            await send_reply(send, shutting_down(request.id))
            return
        if not self.sessions.make_room():
            await send_reply(send, overloaded("too many sessions are open", request.id))
            return
        session = self.sessions.make(context.principal)
        context.session = session.session
        response: Response | None = None
        try:
            response = await self._endpoint.handle(request, context)
        finally:
            if response is None or not response.result:
                self.sessions.end(session)  # a server may have been started for it
        if response.result:
            self.sessions.greeted(session)
            header = (SESSION_HEADER, session.id.encode())
            await send_response(send, response, 200, (header,))
        else:
            await send_response(send, response, status(response))

    async def post(
        self,
        session: HttpSession,
        inbound: Request | ClientAnswer | list[Request | ClientAnswer | Refused],
        context: Context,
        client: Client,
        send: Send,
        streams: bool = False,
    ) -> None:
        """Take in what a client posted; `streams` if it would rather have its answer as events."""
        context.session = session.session
        if not isinstance(inbound, Request) or inbound.method != INITIALIZED:
            session.is_used = True
        if isinstance(inbound, ClientAnswer):
            session.connection.settle(inbound)
            await send_reply(send, _ACCEPTED)
        elif isinstance(inbound, list):
            await self._batch(session, inbound, context, client, send)
        elif not inbound.id:
            await self._notice(session, inbound, context)
            await send_reply(send, _ACCEPTED)
        elif self._load.draining:
            await send_reply(send, shutting_down(inbound.id))
        elif (clash := session.connection.clash(inbound)) is not None:
            await send_response(send, clash, 400)
        elif not inbound.is_static:
            await self._call(session, inbound, context, client, send, streams)
        else:
            answer = self._endpoint.handle(inbound, context)
            if type(answer) is not Response:
                await self._call(session, inbound, context, client, send, streams, answer)
            elif streams and answer.result and (stream := session.open_stream()) is not None:
                await self._respond(session, stream, client, send, streams, answer.encode())
            else:
                await send_response(send, answer, status(answer))

    def begin(self, session: HttpSession, request: Request, line: Line) -> SessionCall | None:
        """Make room for a call; None if there is none."""
        if not self._load.begin_call():
            return None
        number = session.reserve()
        if not number:
            self._load.end_call()
            return None
        load, pulse = self._load, self._pulse
        return SessionCall(session, number, request, line, load, pulse, self._take_over)

    async def get(
        self, session: HttpSession, last_event: bytes | None, client: Client, send: Send
    ) -> None:
        """Open a stream for what comes unasked, or take up the one that an event id names."""
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
        """End a session because its client says so."""
        self.sessions.end(session)
        await send_reply(send, Reply(204))

    async def _listen(self, session: HttpSession, client: Client, send: Send) -> None:
        stream = session.open_stream(listens=True)
        if stream is None:
            await send_reply(send, overloaded("too many streams are open in this session"))
            return
        exchange = self._exchange(send, stream.prime)
        await self._carry(session, stream, exchange, client, opens=True)

    async def _resume(
        self, session: HttpSession, last_event: bytes, client: Client, send: Send
    ) -> None:
        place = parse_event_id(last_event)
        stream = session.streams.get(place[0]) if place is not None else None
        if place is None or stream is None:
            await send_reply(send, refusal(400, "nothing is kept for this Last-Event-ID"))
            return
        exchange = self._exchange(send)
        await self._carry(session, stream, exchange, client, opens=True, after=place[1])

    def cancel_all(self) -> None:
        """Cancel every call, because a drain has taken too long."""
        for session in self.sessions:
            session.connection.close()

    async def _notice(self, session: HttpSession, notice: Request, context: Context) -> None:
        if notice.method == "notifications/cancelled":
            session.connection.cancel(notice)
        else:
            await self._endpoint.handle(notice, context)

    async def _call(
        self,
        session: HttpSession,
        request: Request,
        context: Context,
        client: Client,
        send: Send,
        streams: bool,
        answer: Answer | None = None,
    ) -> None:
        stream = self._begin(session, context)
        if stream is None:
            discard(answer)
            await send_reply(send, overloaded("too many calls are running", request.id))
            return
        response: Response | None = None

        async def work() -> None:
            nonlocal response
            begun = answer or self._endpoint.handle(request, context)
            response = await session.connection.arrived(begun)

        def over() -> None:
            discard(answer)
            last = response
            if last is None and self._load.gave_up:
                last = stopped(request.id)
            if last is None or last.is_nothing:
                stream.complete()  # cancelled: it gets no answer (cancellation)
            else:
                stream.complete(last.encode(), status(last))
            session.tidy(stream)
            self._load.end_call()

        refused = session.connection.start(request, work, over)
        if refused is not None:
            session.close_stream(stream)
            self._load.end_call()
            await send_response(send, refused, 400)
            return
        await self._respond(session, stream, client, send, streams)

    async def _batch(
        self,
        session: HttpSession,
        members: list[Request | ClientAnswer | Refused],
        context: Context,
        client: Client,
        send: Send,
    ) -> None:
        """Array in, array out (2025-03-26); 202 if nobody waits for anything."""
        waiting = any(isinstance(m, Refused) or (isinstance(m, Request) and m.id) for m in members)
        if waiting and self._load.draining:
            await send_reply(send, shutting_down())
            return
        stream = self._begin(session, context)
        if stream is None:
            await send_reply(send, overloaded("too many calls are running"))
            return

        def deliver(answers: bytes) -> None:
            stream.complete(answers)
            session.tidy(stream)
            self._load.end_call()

        batch = Batch(deliver)
        batch.serve(members, self._endpoint, session.connection, context)
        if waiting:
            await self._respond(session, stream, client, send)
        else:
            await send_reply(send, _ACCEPTED)

    def _begin(self, session: HttpSession, context: Context) -> Stream | None:
        """Count a call and open its stream; None if there are too many."""
        if not self._load.begin_call():
            return None
        stream = session.open_stream()
        if stream is None:
            self._load.end_call()
            return None
        context.peer = LegacyPeer(session, stream)
        return stream

    def _take_over(self, session: HttpSession, stream: Stream, line: Line) -> None:
        """Let a usual response carry the stream of a call that was begun without one."""

        async def respond(scope: Scope, receive: Receive, send: Send) -> None:
            session.exchanges -= 1  # from now on it is counted as all others are
            await self._carry(session, stream, exchange, Client(scope, receive), begun=True)

        exchange = self._exchange(line.hand_over(respond), stream.prime)
        stream.begin(exchange)

    def _exchange(self, send: Send, prime: Callable[[], bytes] | None = None) -> Exchange:
        return Exchange(send, self._pulse, prime=prime, can_be_abandoned=True)

    async def _respond(
        self,
        session: HttpSession,
        stream: Stream,
        client: Client,
        send: Send,
        streams: bool = False,
        answer: bytes = b"",
    ) -> None:
        exchange = self._exchange(send, stream.prime)
        await self._carry(session, stream, exchange, client, opens=streams, answer=answer)
        if not stream.over.done():  # its client has left: until it is answered, its body counts
            await _first_of(stream.over)

    async def _carry(
        self,
        session: HttpSession,
        stream: Stream,
        exchange: Exchange,
        client: Client,
        *,
        opens: bool = False,
        begun: bool = False,
        after: int = 0,
        answer: bytes = b"",
    ) -> None:
        """Let a response carry the stream, until one of them is over or the client leaves.

        "Disconnection SHOULD NOT be interpreted as the client cancelling its request."
        """
        if opens or begun:  # it must not be missed that the reader of a stream left just now
            gone: asyncio.Future[None] = asyncio.create_task(client.gone())
        else:
            gone = asyncio.get_running_loop().create_future()
            client.when_gone(lambda: None if gone.done() else gone.set_result(None))
        ending: asyncio.Task[None] | None = None
        session.exchanges += 1
        try:
            if not begun:
                await stream.carry(exchange, after)
            if opens:
                await exchange.open()
            if stream.listens:
                session.listen(stream)
            if answer:
                stream.complete(answer)
            await _first_of(gone, stream.over, exchange.over)
            if not gone.done() and not exchange.ended:
                last = exchange.end() if exchange.abandoned else stream.finish(exchange)
                if exchange.opened:
                    ending = asyncio.create_task(last)
                    await _first_of(gone, ending)
                else:
                    await last  # one answer, and no reader of a stream to wait for
        finally:
            client.stay()
            gone.cancel()
            if ending is not None:
                ending.cancel()
            exchange.close()
            stream.detach(exchange)
            session.exchanges -= 1
            session.unlisten(stream)
            session.tidy(stream)


async def _first_of(*futures: "asyncio.Future[None]") -> None:
    """Wait for one of them, with less ado than `asyncio.wait`: every call comes by here."""
    woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake(_: object) -> None:
        if not woken.done():
            woken.set_result(None)

    for future in futures:
        future.add_done_callback(wake)
    try:
        await woken
    finally:
        for future in futures:
            future.remove_done_callback(wake)


def missing_or_gone(given: bool) -> Reply:
    """The refusal of what needs a session and has none."""
    return _GONE if given else _MISSING
