"""One request on a server connection, and the writer of its response."""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from portico.core.http1.port import (
    CLOSE,
    JSON_HEADERS,
    REFUSALS,
    TEXT_TYPE,
    BodyReceiver,
    Headers,
    RespondingCall,
    Scope,
)

if TYPE_CHECKING:
    from portico.core.http1.server_connection import ServerConnection

_JOIN_LIMIT = 64 * 1024
"""Up to this size, one copy costs less than several writes."""
_LINGER_S = 5.0
_CHUNKED = (b"transfer-encoding", b"chunked")
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_FAILED = (TEXT_TYPE, CLOSE)


class ServerExchange:
    """A request, from its head on, and the response to it."""

    def __init__(
        self, connection: "ServerConnection", scope: Scope, keeps_alive: bool = False
    ) -> None:
        self._connection = connection
        self.scope = scope
        self.keeps_alive = keeps_alive
        """True if another request may follow on this connection."""
        self.pieces: list[bytes] = []
        """The body that has arrived and was not delivered yet."""
        self.is_received = False
        """True once the whole request has arrived."""
        self.refusal = 0
        """The status that refuses the rest of the request and of the connection."""
        self.is_ended = False
        """True once the response is complete, or the client has disconnected."""
        self.call: RespondingCall | None = None
        self._receiver: BodyReceiver | None = None
        self._is_served = False
        self._is_begun = False
        self._is_chunked = False
        self._is_invited = False  # may the client send the body?

    def proceed(self) -> bool:
        """Serve what has arrived; return True once the exchange is over."""
        if self.refusal:
            self._refuse()
            return True
        try:
            self._deliver()
        except Exception as error:  # noqa: BLE001  (of the endpoint; the client gets a 500)
            self.fail(error)
        return self.is_ended and self.is_received

    def disconnected(self) -> None:
        """End the exchange: the client disconnected."""
        self.is_ended = self.is_received = True
        self._receiver = None
        call, self.call = self.call, None
        if call is not None:
            call.on_disconnect()

    def has_header(self, name: bytes) -> bool:
        """True if the request has this header."""
        return any(header[0] == name for header in self.scope["headers"])

    def _deliver(self) -> None:
        if not self._is_served:
            self._is_served = True
            self._receiver = self._connection.server.endpoint.respond(self.scope, self)
            if self._receiver is not None:
                if not self.pieces and self._waits_for_100():
                    self._connection.transport.write(_CONTINUE)
                self._is_invited = True
        if self.pieces:
            pieces, self.pieces = self.pieces, []
            for piece in pieces:
                if self._receiver is not None and not self.is_ended:
                    self._receiver.add(piece)
        if self.is_received and self._receiver is not None and not self.is_ended:
            receiver, self._receiver = self._receiver, None
            receiver.end()

    def _refuse(self) -> None:
        if self.is_ended or self._is_begun:
            self._connection.close()
            return
        call, self.call, self._receiver = self.call, None, None
        if call is not None:
            call.on_disconnect()
        self.answer(self.refusal, (REFUSALS[self.refusal],), _FAILED)

    # The exchange as the writer of its response.

    @property
    def is_slow(self) -> bool:
        """True while the reader has not read all that was written."""
        return self._connection.writable is not None

    def answer(
        self,
        status: int,
        parts: tuple[bytes, ...],
        headers: Headers = JSON_HEADERS,
        *,
        lingers: bool = False,
    ) -> None:
        """Write a whole response."""
        if self.is_ended:
            return
        server, transport = self._connection.server, self._connection.transport
        size = sum(map(len, parts))
        keeps_alive = self.keeps_alive and self.is_received and server.keeps_alive
        if status == 200 and headers is JSON_HEADERS and keeps_alive:
            head = b"%b%d\r\n\r\n" % (server.ok_head(), size)
        else:
            length = () if status == 204 else ((b"content-length", b"%d" % size),)
            head = self._head(status, (*headers, *length))
        if self.scope.get("method") == "HEAD":
            transport.write(head)
        elif size < _JOIN_LIMIT:
            transport.write(b"".join((head, *parts)))
        else:
            transport.writelines((head, *parts))
        self._end(lingers)

    def begin_stream(self, headers: Headers) -> None:
        """Write the head of a response without a length: HTTP/1.0 has no chunks for it."""
        if self.is_ended:
            return
        self._is_begun = True
        self._is_chunked = self.scope["http_version"] == "1.1"
        if self._is_chunked:
            headers = (*headers, _CHUNKED)
        self._connection.transport.write(self._head(200, headers))

    def send_chunk(self, chunk: bytes, *, last: bool = False) -> None:
        """Write a part of the stream."""
        if self.is_ended:
            return
        if chunk:
            parts = (b"%x\r\n" % len(chunk), chunk, b"\r\n") if self._is_chunked else (chunk,)
            self._connection.transport.writelines(parts)
        if last:
            if self._is_chunked:
                self._connection.transport.write(b"0\r\n\r\n")
            self._end()

    async def wait_writable(self) -> None:
        """Wait while the reader is slow."""
        while self._connection.writable is not None:
            await asyncio.shield(self._connection.writable)

    def fail(self, error: BaseException) -> None:
        """Report an unexpected error, and respond with 500 if nothing was written yet."""
        what = {"message": "a request failed", "exception": error, "protocol": self._connection}
        self._connection.server.loop.call_exception_handler(what)
        if self._is_begun and not self.is_ended:
            self.keeps_alive = False
            self._end()  # without the last chunk
        else:
            self.answer(500, (b"Internal Server Error",), _FAILED)

    def _head(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
        """Return the head of a response, with `connection: close` if it is the last one."""
        server = self._connection.server
        if CLOSE in headers:
            self.keeps_alive = False
        elif not self.keeps_alive or not server.keeps_alive or self._waits_for_100():
            # A client that was not invited may send the body, or another request.
            self.keeps_alive = False
            headers = (*headers, CLOSE)
        return server.head(status, headers)

    def _waits_for_100(self) -> bool:
        """True if the client waits for an invitation to send the body."""
        if self._is_invited or self.is_received or self.scope["http_version"] != "1.1":
            return False
        return self.has_header(b"expect")

    def _end(self, lingers: bool = False) -> None:
        connection = self._connection
        self.is_ended = True
        self.call = None
        if self.keeps_alive and connection.server.keeps_alive:
            connection.exchange_ended()
        elif lingers and not self.is_received:
            self.keeps_alive = False  # closed once it is received
            connection.server.loop.call_later(_LINGER_S, connection.close)
        else:
            connection.close()
