"""The seam between a call and the HTTP response to it, and its ASGI implementation."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from portico.transport.asgi import JSON_TYPE, ClientPresence, Message, Receive, Scope, Send
from portico.transport.events import EVENT_STREAM

App = Callable[[Scope, Receive, Send], Awaitable[None]]


class WritingCall(Protocol):
    """A running call, as its response writer sees it."""

    def on_disconnect(self) -> None:
        """Handle the client's disconnect."""
        ...

    async def wait_finished(self) -> None:
        """Wait until the request is no longer needed."""
        ...


class CallWriter(Protocol):
    """The response to one request, as a call sees it; only `wait_writable` waits."""

    call: WritingCall | None
    """The call that writes it."""

    @property
    def is_slow(self) -> bool:
        """True while the reader has not read all that was written."""
        ...

    def begin_stream(self) -> None:
        """Write the head of a stream of events."""
        ...

    def send_chunk(self, chunk: bytes, *, last: bool = False) -> None:
        """Write a part of the stream."""
        ...

    def answer(self, status: int, parts: tuple[bytes, ...]) -> None:
        """Write a whole response."""
        ...

    async def wait_writable(self) -> None:
        """Wait while the reader is slow."""
        ...

    def hand_over(self, app: App) -> Send:
        """Let this app respond over ASGI from now on, and return its `send`."""
        ...


class AsgiResponseWriter:
    """The response to one ASGI request. The request's own task sends what a call writes."""

    call: WritingCall | None = None
    _is_complete = False
    _app: App | None = None
    _changed: asyncio.Event | None = None
    _sent: asyncio.Event | None = None

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._unsent: list[Message] = []

    @property
    def is_slow(self) -> bool:
        """True while messages wait to be sent."""
        return bool(self._unsent)

    def begin_stream(self) -> None:
        """Send the head of a stream of events."""
        headers = list(EVENT_STREAM)
        self._put({"type": "http.response.start", "status": 200, "headers": headers})

    def send_chunk(self, chunk: bytes, *, last: bool = False) -> None:
        """Send a part of the stream."""
        self._is_complete = last
        self._put({"type": "http.response.body", "body": chunk, "more_body": not last})

    def answer(self, status: int, parts: tuple[bytes, ...]) -> None:
        """Send a whole response."""
        body = b"".join(parts)
        headers = [JSON_TYPE, (b"content-length", b"%d" % len(body))]
        self._is_complete = True
        self._put(
            {"type": "http.response.start", "status": status, "headers": headers},
            {"type": "http.response.body", "body": body},
        )

    async def wait_writable(self) -> None:
        """Wait until all messages are sent."""
        while self._unsent:
            self._sent = self._sent or asyncio.Event()
            self._sent.clear()
            await self._sent.wait()

    def hand_over(self, app: App) -> Send:
        """Let this app respond from now on, and return its `send`."""
        self._app = app
        self._put()
        return self._send

    async def send_all(self) -> None:
        """Send the response until it is complete or the client disconnects."""
        if self._is_complete:
            await self._flush()
            return
        await self._send_while_connected()
        if self._app is not None:
            await self._app(self._scope, self._receive, self._send)
        if self.call is not None:
            await self.call.wait_finished()

    async def _send_while_connected(self) -> None:
        """Send messages as they are written, while the client is connected."""
        task = asyncio.current_task()
        assert task is not None
        client = ClientPresence(self._scope, self._receive)
        disconnected = False

        def on_disconnect() -> None:
            nonlocal disconnected
            disconnected = True
            task.cancel()

        client.watch(on_disconnect)
        try:
            self._changed = asyncio.Event()
            while await self._flush() and not self._is_complete and self._app is None:
                self._changed.clear()
                await self._changed.wait()
        except asyncio.CancelledError:
            if not disconnected or task.uncancel():
                raise
        finally:
            client.unwatch()
            if self.call is not None:
                self.call.on_disconnect()  # no effect on a call that has ended
            self._unsent.clear()
            self._notify_sent()

    async def _flush(self) -> bool:
        """Send all waiting messages; return False if the client disconnected (ASGI 2.4)."""
        try:
            while self._unsent:
                await self._send(self._unsent[0])
                del self._unsent[0]
        except OSError:
            return False
        self._notify_sent()
        return True

    def _notify_sent(self) -> None:
        if self._sent is not None:
            self._sent.set()

    def _put(self, *messages: Message) -> None:
        self._unsent += messages
        if self._changed is not None:
            self._changed.set()
