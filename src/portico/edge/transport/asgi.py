"""ASGI as a driver of the port: the request's own task sends what its writer is given."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from portico.core.http1.port import (
    CLOSE,
    JSON_HEADERS,
    REFUSALS,
    TEXT_TYPE,
    BodyReceiver,
    Headers,
    HttpEndpoint,
    RespondingCall,
    Scope,
)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_LINGER_S = 5.0


class AsgiResponseWriter:
    """The response to one ASGI request. The request's own task sends what a call writes."""

    call: RespondingCall | None = None
    _is_complete = False
    _lingers = False
    _error: BaseException | None = None
    _reading: asyncio.Timeout | None = None

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._unsent: list[Message] = []
        self._changed = asyncio.Event()
        self._sent = asyncio.Event()

    async def serve(self, endpoint: HttpEndpoint, body_s: float) -> None:
        """Let an endpoint respond; its body must arrive within this time."""
        body = endpoint.respond(self._scope, self)
        if body is not None and await self._read(body, body_s):
            body.end()
        await self.send_all()
        if self._error is not None:
            raise self._error

    async def send_all(self) -> None:
        """Send the response until it is complete or the client disconnects."""
        if self._is_complete:
            await self._flush()
            return
        task = asyncio.current_task()
        assert task is not None
        left = False

        async def watch() -> None:
            nonlocal left
            while (await self._receive())["type"] != "http.disconnect":
                pass
            left = True
            task.cancel()

        watching = asyncio.create_task(watch())
        try:
            while await self._flush() and not self._is_complete:
                self._changed.clear()
                await self._changed.wait()
        except asyncio.CancelledError:
            if not left or task.uncancel():
                raise
        finally:
            watching.cancel()
            self._disconnected()  # no effect on a call that has ended

    # The response writer.

    @property
    def is_slow(self) -> bool:
        """True while messages wait to be sent."""
        return bool(self._unsent)

    def answer(
        self,
        status: int,
        parts: tuple[bytes, ...],
        headers: Headers = JSON_HEADERS,
        *,
        lingers: bool = False,
    ) -> None:
        """Send a whole response."""
        body = b"".join(parts)
        length = () if status == 204 else ((b"content-length", b"%d" % len(body)),)
        self._lingers = lingers
        self._put(
            {"type": "http.response.start", "status": status, "headers": [*headers, *length]},
            {"type": "http.response.body", "body": body, "more_body": lingers},
            last=True,
        )

    def begin_stream(self, headers: Headers) -> None:
        """Send the head of a response without a length."""
        self._put({"type": "http.response.start", "status": 200, "headers": list(headers)})

    def send_chunk(self, chunk: bytes, *, last: bool = False) -> None:
        """Send a part of the stream."""
        self._put({"type": "http.response.body", "body": chunk, "more_body": not last}, last=last)

    async def wait_writable(self) -> None:
        """Wait until all messages are sent."""
        while self._unsent:
            self._sent.clear()
            await self._sent.wait()

    def fail(self, error: BaseException) -> None:
        """Raise this error in the request's task: its server reports it."""
        self._error = error
        self._put(last=True)

    def _put(self, *messages: Message, last: bool = False) -> None:
        if self._is_complete:
            return
        self._is_complete = last
        self._unsent += messages
        self._changed.set()
        if self._reading is not None and not self._reading.expired():
            self._reading.reschedule(asyncio.get_running_loop().time())  # it is refused

    # The request's task.

    async def _read(self, body: BodyReceiver, within_s: float) -> bool:
        """Deliver the body; return False if it is refused, or the client sends no more of it."""
        message: Message = {"more_body": True}
        try:
            async with asyncio.timeout(within_s) as self._reading:
                while message.get("more_body") and not self._is_complete:
                    message = await self._receive()
                    if message["type"] != "http.request":
                        self._disconnected()
                    elif piece := message.get("body"):
                        body.add(piece)
        except TimeoutError:
            if not self._is_complete:
                if self.call is not None:
                    self.call.on_disconnect()
                self.answer(408, (REFUSALS[408],), (TEXT_TYPE, CLOSE))
        finally:
            self._reading = None
        return not self._is_complete

    async def _flush(self) -> bool:
        """Send all waiting messages; return False if the client disconnected (ASGI 2.4)."""
        try:
            while self._unsent:
                await self._send(self._unsent[0])
                del self._unsent[0]
            if self._lingers:
                await self._discard_rest()
                await self._send({"type": "http.response.body"})
        except OSError:
            return False
        self._sent.set()
        return True

    async def _discard_rest(self) -> None:
        """Read for a moment: closing on unread data would reset the connection."""
        try:
            async with asyncio.timeout(_LINGER_S):
                while (message := await self._receive())["type"] == "http.request":
                    if not message.get("more_body"):
                        return
        except TimeoutError:
            return

    def _disconnected(self) -> None:
        """Write nothing more, and tell the call."""
        self._is_complete = True
        self._unsent.clear()
        self._sent.set()
        if self.call is not None:
            self.call.on_disconnect()
