"""Modern HTTP: every POST is its own; to leave is to cancel (2026-07-28, streamable HTTP)."""

import asyncio

from portico.model.context import Context
from portico.model.errors import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
    AskError,
)
from portico.model.message import Request, Response
from portico.model.types import Answer
from portico.state.pending import discard
from portico.transport.asgi import (
    Client,
    Send,
    overloaded,
    send_reply,
    send_response,
    shutting_down,
)
from portico.transport.connection import Endpoint, stopped
from portico.transport.events import Exchange, Pulse, event
from portico.transport.limits import Load

STATUS = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    METHOD_NOT_FOUND: 404,
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
}
"""The HTTP status of an answer by its error code; 200 for all others."""

LISTEN = "subscriptions/listen"


class ModernPeer:
    """The way back to a modern asker: the response to its own POST."""

    def __init__(self, exchange: Exchange, load: Load) -> None:
        self._exchange = exchange
        self._load = load

    async def notify(self, message: bytes) -> None:
        """Send a notification; waits while the reader is slow."""
        await self._exchange.event(event(message))

    async def ask(self, method: str, params: bytes) -> bytes:
        """Refuse: "the server MUST NOT send independent JSON-RPC requests on this stream"."""
        raise AskError(f"{method}: a modern client is asked by an input_required result")

    async def closed(self) -> None:
        """Wait until we drain; if the client leaves first, its call is cancelled."""
        await self._load.drain_began.wait()


class Modern:
    """Answers modern requests, one HTTP request each."""

    def __init__(self, endpoint: Endpoint, load: Load, pulse: Pulse) -> None:
        self._endpoint = endpoint
        self._load = load
        self._pulse = pulse

    async def serve(
        self,
        request: Request,
        context: Context,
        client: Client,
        send: Send,
        streams: bool = False,
    ) -> None:
        """Answer one request or notification; `streams` if the client would rather have events."""
        if self._load.draining and request.id:
            await send_reply(send, shutting_down(request.id))
            return
        if not request.id:
            await send_response(send, await self._endpoint.handle(request, context), 200)
            return
        answer = self._endpoint.handle(request, context) if request.is_static else None
        if type(answer) is Response:
            await self._answer_now(answer, send, streams)
            return
        listens = request.method == LISTEN
        begin, end = (
            (self._load.begin_stream, self._load.end_stream)
            if listens
            else (self._load.begin_call, self._load.end_call)
        )
        if not begin():
            discard(answer)
            why = "too many streams are open" if listens else "too many calls are running"
            await send_reply(send, overloaded(why, request.id))
            return
        exchange = Exchange(send, self._pulse)
        context.peer = ModernPeer(exchange, self._load)
        try:
            if streams:
                await exchange.open()
            answer = answer or self._endpoint.handle(request, context)
            await self._call(request, answer, exchange, client)
        finally:
            discard(answer)
            exchange.close()
            end()

    async def _answer_now(self, response: Response, send: Send, streams: bool) -> None:
        if streams and response.result:
            await self._stream(response, send)
        else:
            await send_response(send, response, STATUS.get(response.code, 200))

    async def _stream(self, response: Response, send: Send) -> None:
        exchange = Exchange(send, self._pulse)
        try:
            await exchange.open()
            await exchange.answer(response.encode())
        finally:
            exchange.close()

    async def _call(
        self, request: Request, answer: Answer, exchange: Exchange, client: Client
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._load.tasks.add(task)

        def leave() -> None:
            # Closing the response "MUST be treated by the server as cancellation".
            exchange.close()
            task.cancel()

        client.when_gone(leave)
        try:
            response = await answer
        except asyncio.CancelledError:
            if exchange.closed:
                task.uncancel()
                return  # the client has left
            if not self._load.gave_up:
                raise
            task.uncancel()
            response = stopped(request.id)
        finally:
            client.stay()
            self._load.tasks.discard(task)
        await exchange.answer(response.encode(), STATUS.get(response.code, 200))
