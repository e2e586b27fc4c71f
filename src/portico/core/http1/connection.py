"""One HTTP/1.1 client connection: it sends a request, receives its response, then the next."""

import asyncio
import re
import select
import sys
from collections.abc import Callable
from math import inf
from typing import cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from portico.core.http1.body import BytesBody, FileBody
from portico.core.http1.errors import ConnectionLost, InvalidRequest, error_text
from portico.core.http1.response import MAX_SMALL_BODY, Http1Response

MAX_HEAD = 64 * 1024
MAX_HEADERS = 256
_SLICE = 256 * 1024
_BODILESS = (204, 304)
_TIMEOUT = re.compile(r"(?:^|,)\s*timeout\s*=\s*\"?(\d{1,9})", re.IGNORECASE | re.ASCII)
_NO_RESPONSE = "closed the connection without a response"
_CUT = "closed the connection before the end of its response"
_MARGIN_S = 1.0
"""A request must arrive, not only be sent, before the server closes the connection."""


class MalformedResponse(Exception):
    """The server sent bytes that are not a valid response."""


class Http1Connection(asyncio.Protocol):
    """Sends one request at a time, and none twice."""

    def __init__(
        self,
        on_idle: Callable[["Http1Connection"], None],
        on_closed: Callable[["Http1Connection"], None],
    ) -> None:
        """Call `on_idle` when another request can be sent, and `on_closed` after the end."""
        self.idle_since = 0.0
        self.keep_alive_s = inf
        """How long the server keeps an idle connection open, less a margin."""
        self.release: Callable[[], None] | None = None
        """Releases its slot, if its pool counts it."""
        self._on_idle = on_idle
        self._on_closed = on_closed
        self.transport: asyncio.Transport | None = None
        self._poll: select.poll | None = None
        self._parser: HttpResponseParser | None = None
        self._response: Http1Response | None = None
        self._begin_head()
        self._keep_alive = False  # can another request follow this response?
        self._body_until_close = False  # does the body end with the connection?
        self._body_left = 0  # of a large body, which needs no parser
        self._pieces: list[bytes] = []  # of the body, found by the parser
        self._is_paused = False
        self._is_write_paused = False  # is the server slow to read?
        self._unsent: BytesBody | FileBody | None = None
        self._is_head = False  # has the response no body, whatever its headers say?

    def send(
        self,
        head: bytes,
        body: bytes | FileBody,
        on_ready: Callable[[Http1Response], None] | None = None,
    ) -> Http1Response:
        """Send a request; a large body is written as fast as the server reads it."""
        assert self._response is None
        response = Http1Response(self, on_ready)
        if self.transport is None:  # the server accepted the connection and closed it at once
            response.fail(ConnectionLost(_NO_RESPONSE))
            return response
        self._response = response
        self._begin_head()
        self._size_since_body = self._body_left = 0
        self._body_until_close = self._keep_alive = False
        self._is_head = head.startswith(b"HEAD ")
        if isinstance(body, bytes) and len(body) <= MAX_SMALL_BODY:
            self.transport.write(head + body)
        else:
            self.transport.write(head)
            unsent = BytesBody(body) if isinstance(body, bytes) else body
            self._unsent = unsent if unsent.left else None
            self._write_unsent()
        return response

    @property
    def is_open(self) -> bool:
        """True until either side closes it."""
        return self.transport is not None

    def is_alive(self) -> bool:
        """True if it can send a request: neither closed nor about to be."""
        assert self.transport is not None
        if self.transport.is_closing():
            return False
        # No request is pending, so any readable data means the connection is ending or broken.
        sock = self.transport.get_extra_info("socket")
        if sys.platform == "win32":
            return not select.select([sock], [], [], 0)[0]
        if self._poll is None:
            self._poll = select.poll()
            self._poll.register(sock.fileno(), select.POLLIN)
        return not self._poll.poll(0)

    def abort(self) -> None:
        """Close it; a pending response fails."""
        if self.transport is not None:
            self.transport.abort()

    # Called by the response.

    def resume(self) -> None:
        """Read on: the response has room for more of the body."""
        if self._is_paused:
            self._is_paused = False
            if self.transport is not None and not self.transport.is_closing():
                self.transport.resume_reading()

    def release_slot(self) -> None:
        """Stop counting against the pool's limit, even if the response continues."""
        if self.release is not None:
            release, self.release = self.release, None
            release()

    def drop(self, response: Http1Response) -> None:
        """Close the connection: HTTP/1.1 has no other way to skip the rest of a response."""
        if self._response is response:
            self._response = None
            self.abort()

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        # Transports of uvloop do not subclass those of asyncio.
        self.transport = cast("asyncio.Transport", transport)
        self._parser = self._new_parser()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the pending response: either side closed the connection."""
        # The parser refers to our methods: dropping it breaks the reference cycle.
        self.transport = self._parser = self._poll = self._unsent = None
        self._on_closed(self)
        if self._response is not None:
            self._on_end(self._response, exc)

    def eof_received(self) -> None:
        """End the response; a body without a length ends here."""
        response = self._response
        if response is not None:
            response.is_whole = self._body_until_close
            self._on_end(response, None)

    def data_received(self, data: bytes) -> None:
        """Add data to the pending response."""
        response = self._response
        if response is None:  # it answers no request
            self.abort()
            return
        if self._body_left:
            self._add_plain(response, data)
        else:
            self._parse(response, data)
        self._settle(response)

    def _parse(self, response: Http1Response, data: bytes) -> None:
        assert self._parser is not None
        self._size_since_body += len(data)
        try:
            self._parser.feed_data(data)
            if self._size_since_body > MAX_HEAD and not response.is_whole:
                raise MalformedResponse(f"headers longer than {MAX_HEAD} bytes")
        except (HttpParserError, HttpParserUpgrade, MalformedResponse) as error:
            self._keep_alive = False
            response.fail(_invalid_response(error))
        if self._is_head and response.is_whole:
            self._parser = self._new_parser()  # the old one may expect a body
        if self._pieces:
            # Joined, since a body in chunks of one byte would fill the memory with objects.
            response.add(self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces))
            self._pieces = []

    def _add_plain(self, response: Http1Response, data: bytes) -> None:
        """Add data to a large body of known length without parsing, which would copy it."""
        piece = data if len(data) <= self._body_left else data[: self._body_left]
        response.add(piece)
        self._body_left -= len(piece)
        if not self._body_left:
            assert self._parser is not None
            response.is_whole = True
            self._keep_alive = self._parser.should_keep_alive() and len(piece) == len(data)
            self._parser = self._new_parser()  # the old one still expects the body

    def pause_writing(self) -> None:
        """Stop writing until the server reads."""
        self._is_write_paused = True

    def resume_writing(self) -> None:
        """Write on."""
        self._is_write_paused = False
        self._write_unsent()

    # Called by the parser.

    def on_message_begin(self) -> None:
        """Reject a response that answers no request."""
        if self._response is None or self._response.is_whole:
            raise MalformedResponse("unexpected data after the body")

    def on_status(self, status: bytes) -> None:
        """Add a part of the reason phrase."""
        self._reason += status
        if len(self._reason) > MAX_HEAD:
            raise MalformedResponse(f"headers longer than {MAX_HEAD} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; a trailer after the body is only counted."""
        self._header_count += 1
        self._header_size += len(name) + len(value)
        if self._header_count > MAX_HEADERS or self._header_size > MAX_HEAD:
            raise MalformedResponse(
                f"more than {MAX_HEADERS} headers, or more than {MAX_HEAD} bytes of headers"
            )
        response = self._response
        if response is None or response.status:
            return
        key = name.decode("latin-1").lower()
        text = _text(value).strip()
        headers = self._headers
        headers[key] = f"{headers[key]}, {text}" if key in headers else text

    def on_headers_complete(self) -> None:
        """Read the status and the framing of the body."""
        response, parser = self._response, self._parser
        assert response is not None
        assert parser is not None
        status = parser.get_status_code()
        if status < 200:
            if status == 101:
                raise MalformedResponse("unexpected switch to another protocol")
            return
        headers = self._headers
        coding = headers.get("transfer-encoding")
        if coding is not None and coding.lower() != "chunked":
            raise MalformedResponse(f"unsupported Transfer-Encoding {coding[:40]!r}")
        length = headers.get("content-length")
        is_bodiless = self._is_head or status in _BODILESS
        self._body_until_close = coding is None and length is None and not is_bodiless
        size = 0 if is_bodiless else int(length or 0)
        self._body_left = size if size > MAX_SMALL_BODY and coding is None else 0
        is_framed = not self._body_until_close and coding is None
        response.is_small = self._is_head or (is_framed and size <= MAX_SMALL_BODY)
        if "keep-alive" in headers and (found := _TIMEOUT.search(headers["keep-alive"])):
            timeout_s = int(found[1])
            self.keep_alive_s = timeout_s - min(_MARGIN_S, timeout_s / 2)
        response.headers = headers
        response.reason = _text(self._reason)
        response.status = status
        if self._is_head:
            response.is_whole = True
            self._keep_alive = parser.should_keep_alive()

    def on_body(self, body: bytes) -> None:
        """Add a part of the body."""
        if self._is_head:
            raise MalformedResponse("a body after the headers that alone were requested")
        self._size_since_body = 0
        if self._body_left:
            self._body_left -= len(body)
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        """End the response, unless it was an interim one (1xx)."""
        assert self._response is not None
        assert self._parser is not None
        if self._response.status:
            self._response.is_whole = True
            self._keep_alive = self._parser.should_keep_alive()
        else:
            self._begin_head()

    def _new_parser(self) -> HttpResponseParser:
        parser = HttpResponseParser(self)
        # Old servers send these and all clients accept them. They endanger proxies, which forward
        # the bytes; here only the parser reads them.
        parser.set_dangerous_leniencies(
            lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )
        return parser

    def _begin_head(self) -> None:
        self._headers: dict[str, str] = {}
        self._reason = b""
        self._header_count = self._header_size = 0

    def _settle(self, response: Http1Response) -> None:
        """Reuse, close or pause the connection after a response changed; then wake its reader."""
        if response.is_over():
            self._response = None
            if self._keep_alive and self._unsent is None and self.transport is not None:
                self._on_idle(self)
            else:
                self.abort()
        elif response.is_full() and not self._is_paused:
            assert self.transport is not None
            self._is_paused = True
            self.transport.pause_reading()
        response.wake()

    def _on_end(self, response: Http1Response, error: Exception | None) -> None:
        self._keep_alive = False
        why = _CUT if response.status else _NO_RESPONSE
        if error is not None:
            why = f"dropped the connection: {error_text(error)}"
        response.fail(ConnectionLost(why))
        self._settle(response)

    def _write_unsent(self) -> None:
        """Write the next pieces of a large request while the server reads them."""
        while self._unsent is not None and not self._is_write_paused and self.transport is not None:
            body = self._unsent
            try:
                piece = body.take(_SLICE)
            except OSError as error:
                self._stop_sending(error)
                return
            self._unsent = body if body.left else None
            self.transport.write(piece)

    def _stop_sending(self, error: OSError) -> None:
        """Close the connection: a body that cannot be read cannot be completed either."""
        if self._response is not None:
            self._response.fail(InvalidRequest(f"its body cannot be read: {error_text(error)}"))
        self.abort()


def _invalid_response(error: Exception) -> ConnectionLost:
    cause = error.__context__ if isinstance(error.__context__, MalformedResponse) else error
    return ConnectionLost(f"sent an invalid HTTP response: {cause}")


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
