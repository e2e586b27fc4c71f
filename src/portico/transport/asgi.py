"""ASGI for the HTTP transport: types, replies, and the client's disconnect."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from msgspec import Struct

from portico.model.errors import INTERNAL_ERROR, INVALID_REQUEST
from portico.model.message import Response
from portico.protocol.codec import error_response
from portico.transport.calls_in_flight import shutdown_error
from portico.transport.http_limits import HttpLimits

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = tuple[tuple[bytes, bytes], ...]

JSON_TYPE = (b"content-type", b"application/json")
CLOSE = (b"connection", b"close")
RETRY_AFTER = (b"retry-after", b"1")
ON_DISCONNECT = "portico.on_disconnect"
"""The scope key of our own server for the callbacks to run when the connection is lost."""
_LINGER_S = 5.0


class Reply(Struct, frozen=True):
    """A whole HTTP response."""

    status: int
    body: bytes = b""
    headers: Headers = ()
    lingers: bool = False
    """True to read on for a moment, so that a client still sending does not lose this reply."""


def refusal(status: int, why: str, *headers: tuple[bytes, bytes], lingers: bool = False) -> Reply:
    """Return a refusal whose body is a JSON-RPC error without an id, as the spec allows."""
    code = INVALID_REQUEST if status < 500 else INTERNAL_ERROR
    body = error_response(b"", code, why).encode()
    return Reply(status, body, (JSON_TYPE, *headers), lingers)


def overloaded(why: str, id: bytes = b"") -> Reply:
    """Return 503 for a request that may be retried in a moment."""
    return Reply(503, busy(id, why).encode(), (JSON_TYPE, RETRY_AFTER))


def busy(id: bytes, why: str = "too many calls are running") -> Response:
    """Return the error for a call over the limit."""
    return error_response(id, INTERNAL_ERROR, f"{why}: try again in a moment")


def shutting_down(id: bytes = b"") -> Reply:
    """Return 503 for new work during a drain, and close the connection."""
    return Reply(503, shutdown_error(id).encode(), (JSON_TYPE, RETRY_AFTER, CLOSE))


async def send_reply(send: Send, reply: Reply, receive: Receive | None = None) -> None:
    """Send a reply; `receive` is required if it lingers."""
    headers = [*reply.headers, (b"content-length", b"%d" % len(reply.body))]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    if reply.lingers and receive is not None:
        await send({"type": "http.response.body", "body": reply.body, "more_body": True})
        await _discard_rest(receive)
        await send({"type": "http.response.body"})
    else:
        await send({"type": "http.response.body", "body": reply.body})


async def send_response(send: Send, response: Response, status: int, headers: Headers = ()) -> None:
    """Send a response as JSON, joined once; 202 if it is empty."""
    if response.is_nothing:
        await send_reply(send, Reply(202, headers=headers))
        return
    body = b"".join(response.parts)
    start = [JSON_TYPE, (b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": body})


class ClientPresence:
    """The connection of the client whose request has been read: reports its disconnect.

    Our own server calls back (`ON_DISCONNECT` in the scope); with other servers a task waits.
    """

    __slots__ = ("_callback", "_callbacks", "_receive", "_watch")

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._callbacks: set[Callable[[], None]] | None = scope.get(ON_DISCONNECT)
        self._receive = receive
        self._watch: asyncio.Task[None] | None = None
        self._callback: Callable[[], None] | None = None

    async def wait_disconnected(self) -> None:
        """Wait until the client disconnects."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def watch(self, callback: Callable[[], None]) -> None:
        """Call this if the client disconnects before `unwatch`."""
        self._callback = callback
        if self._callbacks is not None:
            self._callbacks.add(callback)
        else:
            self._watch = asyncio.create_task(self._listen(callback))

    def unwatch(self) -> None:
        """Stop watching for a disconnect."""
        if self._watch is not None:
            self._watch.cancel()
        elif self._callbacks is not None and self._callback is not None:
            self._callbacks.discard(self._callback)

    async def _listen(self, callback: Callable[[], None]) -> None:
        await self.wait_disconnected()
        callback()


def declared_too_large(length: bytes, limits: HttpLimits) -> Reply | None:
    """Return a refusal if Content-Length is invalid or over the limit."""
    if not length.isdigit():
        return refusal(400, "Content-Length must be a number", CLOSE)
    return too_large(limits) if int(length) > limits.body_bytes else None


def too_large(limits: HttpLimits) -> Reply:
    """Return 413 for a body over the limit."""
    return refusal(413, f"the body is larger than {limits.body_bytes} bytes", CLOSE, lingers=True)


async def _discard_rest(receive: Receive) -> None:
    """Read for a moment: closing on unread data would reset the connection (RFC 9112, 9.6)."""
    try:
        async with asyncio.timeout(_LINGER_S):
            while (message := await receive())["type"] == "http.request":
                if not message.get("more_body"):
                    return
    except TimeoutError:
        return
