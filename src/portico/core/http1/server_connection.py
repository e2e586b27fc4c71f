"""One HTTP/1.1 server connection: it parses requests and serves them one after the other."""

import asyncio
from collections import deque
from collections.abc import MutableSequence
from typing import TYPE_CHECKING
from urllib.parse import unquote

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser, parse_url

from portico.core.http1.port import Scope
from portico.core.http1.server_exchange import ServerExchange
from portico.core.http1.timed_connection import Stage, TimedConnection

if TYPE_CHECKING:
    from portico.core.http1.server import Http1Server

_MAX_PIPELINED = 100
"""Requests in one read; the connection is closed after these (RFC 9112, 9.3.2)."""
_NOWHERE: deque[tuple[bytes, bytes]] = deque(maxlen=0)  # discards headers
_HEAD, _BODY, _IDLE = Stage.HEAD, Stage.BODY, Stage.IDLE
_UPGRADE_HEADERS = (b"connection", b"upgrade", b"http2-settings")
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/")
_ASGI = {"version": "3.0", "spec_version": "2.4"}


class RefusedRequest(Exception):
    """The request is valid for the parser, but not for us; its argument is the status."""


class ServerConnection(TimedConnection):
    """Serves one request at a time; the next ones wait, up to the limit of headers."""

    def __init__(self, server: "Http1Server") -> None:
        super().__init__(server)
        self._parser = HttpRequestParser(self)
        self._buffered = b""  # received while complete requests wait
        self._is_advancing = False
        self._is_over = False  # is all further input ignored?
        self._target = b""
        self._headers: MutableSequence[tuple[bytes, bytes]] = []
        self._rewritten_head = b""  # the head of a request without its upgrade headers
        self._client: tuple[str, int] | None = None
        self._address: tuple[str, int] | None = None

    def refuse(self, status: int) -> None:
        """End the connection with this status, after the responses to earlier requests."""
        self._refuse_rest(status)
        self._advance()

    def close(self) -> None:
        """Write what is left to write, and close."""
        self._is_over = True
        self.transport.close()

    def exchange_ended(self) -> None:
        """Continue with the next request."""
        if self._is_advancing:
            return
        if self.exchanges and self.exchanges[0].is_received:
            del self.exchanges[0]
        if self.exchanges or self._buffered:
            # Not from within the response: the next one may be as quick, and would recurse.
            self.server.loop.call_soon(self._continue)

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the addresses."""
        super().connection_made(transport)
        self._client = _address(transport.get_extra_info("peername"))
        self._address = _address(transport.get_extra_info("sockname"))

    def connection_lost(self, exc: Exception | None) -> None:
        """End all exchanges: the client disconnected."""
        self._is_over = True
        exchanges, self.exchanges = self.exchanges, []
        del self._parser  # it refers to our methods
        for exchange in exchanges:
            exchange.disconnected()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse data and serve what is complete, or let it wait for the response before it."""
        if self._is_over:
            return
        if self._buffered or self.is_behind:
            self._buffered += data
            if len(self._buffered) > self.limits.header_bytes:
                self.transport.pause_reading()
            return
        before = self.stage
        self._parse(data)
        self._advance()
        if (self.stage is not before or before is not _IDLE) and not self._is_over:
            self.check_progress(before, len(data))

    def resume_writing(self) -> None:
        """Serve what waited for the reader."""
        super().resume_writing()
        self.server.loop.call_soon(self._continue)

    def _parse(self, data: bytes) -> None:
        try:
            while data:
                try:
                    self._parser.feed_data(data)
                    data = b""
                except HttpParserUpgrade as upgrade:
                    # We offer no other protocol: parse the request again without its upgrade.
                    data = self._rewritten_head + data[upgrade.args[0] :]
                    self._rewritten_head = b""
        except HttpParserError as error:
            cause = error.__context__
            self._refuse_rest(cause.args[0] if isinstance(cause, RefusedRequest) else 400)

    def _refuse_rest(self, status: int) -> None:
        """Let this refusal follow the requests that are complete."""
        self._headers = _NOWHERE
        if not self.exchanges or self.exchanges[-1].is_received:
            self.exchanges.append(ServerExchange(self, {}))
        refused = self.exchanges[-1]
        refused.refusal = status
        refused.is_received = self._is_over = True

    def _advance(self) -> None:
        """Serve requests until one has to wait for its response or for the rest of its body."""
        self._is_advancing = True
        exchanges = self.exchanges
        try:
            while exchanges and self.writable is None and exchanges[0].proceed():
                if not exchanges[0].keeps_alive or self.transport.is_closing():
                    self.close()
                    return
                del exchanges[0]
        finally:
            self._is_advancing = False

    def _continue(self) -> None:
        """Serve what waited for a response."""
        if self.transport.is_closing():
            return
        self._advance()
        if self._buffered and not self.is_behind:
            buffered, self._buffered = self._buffered, b""
            self.transport.resume_reading()
            self.data_received(buffered)

    # Called by the parser.

    def on_message_begin(self) -> None:
        """Handle the first byte of a request."""
        if len(self.exchanges) >= _MAX_PIPELINED:
            raise RefusedRequest(503)
        self.stage = _HEAD
        self._head_size = 0
        self._body_advanced = False
        self._target = b""
        self._headers = []

    def on_url(self, url: bytes) -> None:
        """Handle a piece of the target."""
        self._target += url
        if len(self._target) > self.limits.header_bytes:
            raise RefusedRequest(414)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header."""
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Begin an exchange, unless the head must be parsed again."""
        parser = self._parser
        self.stage = _BODY
        method = parser.get_method().decode()
        if parser.should_upgrade():
            if method == "CONNECT":
                raise RefusedRequest(405)
            self._rewritten_head = self._without_upgrade(parser)
            return
        if len(self._headers) * len(b"a:\r\n") > self.limits.header_bytes:
            raise RefusedRequest(431)
        version = parser.get_http_version()
        if version not in ("1.1", "1.0"):
            raise RefusedRequest(505)
        path, query = self._split_target()
        scope: Scope = {
            "type": "http",
            "asgi": _ASGI,
            "http_version": version,
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": self._target,
            "query_string": query,
            "root_path": "",
            "headers": self._headers,
            "client": self._client,
            "server": self._address,
        }
        self._headers = _NOWHERE  # trailers must not pass for headers (RFC 9110, 6.5.1)
        # As uvicorn does, close after HTTP/1.0 even if the client prefers to stay.
        keeps_alive = version == "1.1" and parser.should_keep_alive()
        self.exchanges.append(ServerExchange(self, scope, keeps_alive))

    def on_body(self, body: bytes) -> None:
        """Handle a piece of a body."""
        self._body_advanced = True
        self.exchanges[-1].pieces.append(body)

    def on_message_complete(self) -> None:
        """Handle the end of a request, unless it must be parsed again."""
        if not self._rewritten_head:
            self.stage = _IDLE
            self.requests += 1
            self.exchanges[-1].is_received = True

    def _split_target(self) -> tuple[str, bytes]:
        """Return path and query; an absolute URL also names the host (RFC 9112, 3.2.2)."""
        target = self._target
        if _PLAIN.issuperset(target) and target[:1] == b"/":
            return target.decode(), b""
        url = parse_url(target)
        if not target.startswith(b"/"):
            host = target.partition(b"://")[2].partition(b"/")[0]
            if not host:
                raise RefusedRequest(400)
            others = (header for header in self._headers if header[0] != b"host")
            self._headers[:] = [(b"host", host), *others]
        return unquote((url.path or b"/").decode("ascii")), url.query or b""

    def _without_upgrade(self, parser: HttpRequestParser) -> bytes:
        """Return the head without upgrade headers; Java's client sends some, for h2c."""
        version = parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (parser.get_method(), self._target, version)]
        lines += [b"%b: %b" % field for field in self._headers if field[0] not in _UPGRADE_HEADERS]
        if not parser.should_keep_alive():
            lines.append(b"connection: close")
        if any(b"\r" in line or b"\n" in line for line in lines):
            raise RefusedRequest(400)
        return b"\r\n".join((*lines, b"", b""))


def _address(found: "tuple[str, int] | str | None") -> tuple[str, int] | None:
    """Return host and port; a socket in a file has neither."""
    return (found[0], found[1]) if isinstance(found, tuple) else None
