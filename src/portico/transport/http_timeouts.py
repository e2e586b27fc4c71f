"""uvicorn's HTTP connection with timeouts for slow clients and limits on their headers."""

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import Any, cast

from httptools import HttpParserError, HttpParserUpgrade
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from portico.http1.memory_budget import GRACE_S, Allotment
from portico.transport.asgi import ON_DISCONNECT, Scope
from portico.transport.http_app import HttpApp

_REQUEST_TIMEOUT = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_HEADERS_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"connection: close\r\ncontent-length: 0\r\n\r\n"
)

_BODY_HEADERS = (b"content-length", b"transfer-encoding")
_UPGRADE_HEADERS = (b"connection", b"upgrade", b"http2-settings")


class ClientStage(Enum):
    """The part of a request that the client sends next."""

    NEW = "the first byte"
    HEAD = "the rest of the headers"
    BODY = "the rest of the body"
    IDLE = "nothing, or another request"


class TimedHttpConnection(HttpToolsProtocol):
    """Adds the limits that uvicorn lacks: slow or endless headers, stalled readers."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        assert isinstance(config.app, HttpApp)
        self.limits = config.app.limits
        self._cap = config.app.cap
        self._unread = config.app.unread
        self._allotment: Allotment | None = None  # of the memory for unread responses
        self.stage = ClientStage.NEW
        self.requests = 0
        """The number of requests received."""
        self.disconnect_callbacks: set[Callable[[], None]] = set()
        """The callbacks to run when the client disconnects."""
        self._requests_at_check = 0
        self._head_size = 0
        self._unanswered: list[RequestResponseCycle] = []  # when the next request arrived
        self._rewritten_head = b""  # the head of a request without its upgrade headers
        self._chunked = False
        self._body_advanced = False  # has any body data arrived since the last check?
        self._timer: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timeout of a new connection."""
        super().connection_made(transport)
        self._set_timer(self.limits.header_s)
        self._cap.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Release everything, and run the callbacks: the client disconnected."""
        self._cap.remove(self)
        self._release_unread()
        for timer in (self._timer, self._stall):
            if timer is not None:
                timer.cancel()
        for cycle in self._unanswered:
            cycle.disconnected = True  # uvicorn sets only the latest one's
            cycle.message_event.set()
        super().connection_lost(exc)
        for callback in tuple(self.disconnect_callbacks):
            callback()

    def data_received(self, data: bytes) -> None:
        """Parse data; ignore a request for another protocol (RFC 9110, 7.8)."""
        self._unset_keepalive_if_required()
        try:
            while data:
                try:
                    self.parser.feed_data(data)
                    data = b""
                except HttpParserUpgrade as upgrade:
                    data = self._rewritten_head + data[upgrade.args[0] :]
                    self._rewritten_head = b""
        except HttpParserError:
            self.send_400_response("Invalid HTTP request received.")

    def on_message_begin(self) -> None:
        """Handle the first byte of a request."""
        self.stage = ClientStage.HEAD
        self._head_size = 0
        self._chunked = False
        super().on_message_begin()
        cast(Scope, self.scope)[ON_DISCONNECT] = self.disconnect_callbacks

    def on_headers_complete(self) -> None:
        """Pass the request on, with these headers and no trailers."""
        if self.parser.should_upgrade() and any(name in _BODY_HEADERS for name, _ in self.headers):
            # The parser would read its body as another request.
            self._rewritten_head = self._without_upgrade()
            return
        if not self.url.startswith(b"/"):
            self._take_host_of_target()
        self._chunked = any(name == _BODY_HEADERS[1] for name, _ in self.headers)
        before: RequestResponseCycle | None = self.cycle
        super().on_headers_complete()
        if before is None or before.response_complete:
            self._unanswered.clear()
        else:
            self._unanswered.append(before)
        # Trailers must not pass for headers (RFC 9110, 6.5.1): the app keeps the other list.
        self.headers = []

    def on_chunk_header(self) -> None:
        """Handle the start of a chunk."""
        self._body_advanced = True

    def on_body(self, body: bytes) -> None:
        """Handle a piece of a body."""
        self._body_advanced = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Handle the end of a request, unless it must be parsed again."""
        if not self._rewritten_head:
            super().on_message_complete()
            if not self.pipeline:  # uvicorn would stop reading, and miss a disconnect
                self.flow.resume_reading()

    def pause_writing(self) -> None:
        """Start the timeout of a slow reader, and account for the unread data."""
        super().pause_writing()
        waiting = self.transport.get_write_buffer_size()
        if self._stall is None:
            self._stall = self.loop.call_later(self.limits.stall_s, self._stalled, waiting)
        if self._allotment is None:
            self._allotment = self._unread.open(self.transport.abort)
            if not self._unread.take(self._allotment, waiting):
                self._unread.overdraw(self._allotment, waiting)
                self.loop.call_later(GRACE_S, self._unread.trim)  # slow readers are known then

    def resume_writing(self) -> None:
        """Stop the timeout: the reader has caught up."""
        super().resume_writing()
        self._release_unread()
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _stalled(self, before: int) -> None:
        """Disconnect a reader that has read nothing; give a slow one more time."""
        waiting = self.transport.get_write_buffer_size()
        if waiting >= before:
            self.transport.abort()
        else:
            self._stall = self.loop.call_later(self.limits.stall_s, self._stalled, waiting)

    def _release_unread(self) -> None:
        if self._allotment is not None:
            self._unread.close(self._allotment)
            self._allotment = None

    # The connection as the cap sees it.

    @property
    def is_idle(self) -> bool:
        """True between requests."""
        return self.stage is ClientStage.IDLE and not self.is_busy

    def evict(self) -> None:
        """Close the connection to make room for another."""
        self.transport.close()

    @property
    def is_busy(self) -> bool:
        """True while a response is pending."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    @property
    def is_incomplete(self) -> bool:
        """True while the rest of a request is needed to respond."""
        return self.is_busy and not self.cycle.response_started

    def check_progress(self, before: ClientStage, size: int) -> None:
        """Apply limits to the rest of a request, after `size` more bytes of it arrived."""
        if self.stage is ClientStage.HEAD:
            self._cap.begin_head(self)
        else:
            self._cap.end_head(self)
        if self.stage is ClientStage.IDLE:
            return
        if self.stage is not before:
            in_body = self.stage is ClientStage.BODY
            self._set_timer(self.limits.body_s if in_body else self.limits.header_s)
            if in_body:
                self._head_size = 0
                return
        if self.stage is ClientStage.HEAD:
            self._head_size += size
            if self._head_size > self.limits.header_bytes:
                self._refuse(_HEADERS_TOO_LARGE)
        elif self._chunked:
            # Data that is neither body nor its end is limited like headers: it may be trailers.
            self._head_size = 0 if self._body_advanced else self._head_size + size
            self._body_advanced = False
            if self._head_size > self.limits.header_bytes:
                self._cut_off(_HEADERS_TOO_LARGE)

    def _set_timer(self, within_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(within_s, self._on_timeout)

    def _on_timeout(self) -> None:
        """Close an idle connection, or one whose request has timed out."""
        if self.stage is ClientStage.IDLE:
            # Requests do not reset the timer, so an idle connection gets up to twice its time.
            idle = self.requests == self._requests_at_check and not self.is_busy
            self._requests_at_check = self.requests
            if idle:
                self.transport.close()
            else:
                self._set_timer(self.limits.keep_alive_s)
            return
        self._cut_off(_REQUEST_TIMEOUT)

    def _cut_off(self, response: bytes) -> None:
        """Close, with this response unless one was already started."""
        if self.stage is ClientStage.HEAD:
            can_respond = not self.is_busy
        else:
            can_respond = self.is_incomplete
        if can_respond:
            self._refuse(response)
        else:
            self.transport.close()

    def _without_upgrade(self) -> bytes:
        """Return the head without upgrade headers; Java's client sends some, for h2c."""
        parser = self.parser
        version = parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (parser.get_method(), self.url, version)]
        lines += [b"%b: %b" % field for field in self.headers if field[0] not in _UPGRADE_HEADERS]
        if not parser.should_keep_alive():
            lines.append(b"connection: close")
        if any(b"\r" in line or b"\n" in line for line in lines):
            raise ValueError("a header contains a line break")
        return b"\r\n".join((*lines, b"", b""))

    def _take_host_of_target(self) -> None:
        """Take the host from an absolute URL, not from the Host header (RFC 9112, 3.2.2)."""
        _, separator, rest = self.url.partition(b"://")
        if separator:
            others = [header for header in self.headers if header[0] != b"host"]
            self.headers[:] = [(b"host", rest.partition(b"/")[0]), *others]

    def _refuse(self, response: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(response)
            self.transport.close()
