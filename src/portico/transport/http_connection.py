"""One HTTP connection of our own server, with a fast path for plain requests."""

import asyncio
from typing import Any, cast

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle
from uvicorn.server import ServerState

from portico.state.watchdog import ACTIVITY
from portico.transport.asgi import CLOSE, ON_DISCONNECT, Scope, Send
from portico.transport.events import EVENT_STREAM
from portico.transport.http_app import HttpApp
from portico.transport.http_timeouts import ClientStage, TimedHttpConnection
from portico.transport.posts import Entry
from portico.transport.response_writer import App, WritingCall

_HEAD_END = b"\r\n\r\n"
_MAX_KNOWN_HEADS = 8
_MAX_HEAD_BYTES = 4096
_JOIN_LIMIT = 64 * 1024
"""Up to this size, one copy costs less than several writes."""
_STREAM_HEADERS = b"".join(b"%b: %b\r\n" % header for header in EVENT_STREAM)
_JSON_HEADERS = b"content-type: application/json\r\ncontent-length: "


class HttpConnection(TimedHttpConnection):
    """Serves plain requests itself, and passes the others to the app.

    A plain request with a small body needs no task: a static result is written immediately, a
    call's when it arrives. Headers that equal earlier ones of this connection, byte for byte, are
    not parsed again.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        assert isinstance(config.app, HttpApp)
        self._app = config.app
        self._accept = config.app.posts.accept
        self._held_entry: Entry | None = None  # of a request not yet passed to the app
        self._body = b""
        self._is_complete = False  # has the whole body arrived?
        self._use_app = False  # must the app serve the next request?
        self._served_entry: Entry | None = None  # of the latest request served without the app
        self._known_heads: dict[bytes, Entry] = {}
        self.call: WritingCall | None = None
        self._buffered = bytearray()  # data received while a call is running
        self._defaults: list[tuple[bytes, bytes]] = []
        self._default_lines = b""
        self._ok_head = b""
        self._closes_after = False  # does the next response close the connection?

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel or detach the call: the client disconnected."""
        self._held_entry = None
        if self.call is not None:
            self.call.on_disconnect()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse data, and serve a complete plain request or pass it to the app."""
        if ACTIVITY.is_quiet:
            ACTIVITY.note()
        if self.call is not None or self._buffered:
            self._buffered += data
            if len(self._buffered) > self.limits.header_bytes:
                self.transport.pause_reading()
            return
        before = self.stage
        if before is ClientStage.IDLE and self._known_heads and self._serve_known_head(data):
            return
        self._served_entry = None
        super().data_received(data)
        self._use_app = False
        entry = self._held_entry
        if entry is not None and self._is_complete:
            self._held_entry = None
            if self._accept(entry.head, self._body, entry.principal, entry.data, self) is None:
                self._served_entry, self._body = entry, b""
            else:
                self._pass_to_app()
        if before is ClientStage.IDLE or before is ClientStage.NEW:
            self._remember_head(data)
        if self.stage is not before or self.stage is not ClientStage.IDLE:
            self.check_progress(before, len(data))

    def on_message_begin(self) -> None:
        """Handle the first byte of a request."""
        if self._held_entry is not None:
            self._pass_to_app()  # a pipelined request follows: keep their order
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Hold a request that may be served without the app; pass the others on."""
        self.stage = ClientStage.BODY
        if self.url == self._app.target and not self._use_app and self._is_ordinary():
            entry = self._app.entry(cast(Scope, self.scope))
            # The app accounts for the memory of large bodies.
            self._held_entry = entry if entry is not None and entry.length <= _JOIN_LIMIT else None
        if self._held_entry is not None:
            self._is_complete = False
            self._body = b""
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Handle a piece of the body; the app joins a body of several pieces."""
        if self._held_entry is not None and not self._body:
            self._body = body
            return
        if self._held_entry is not None:
            self._pass_to_app()
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Handle the end of a request."""
        self.stage = ClientStage.IDLE
        self.requests += 1
        if self._held_entry is None:
            super().on_message_complete()
        else:
            self._is_complete = True

    # The connection as the response writer of a call.

    def answer(self, status: int, parts: tuple[bytes, ...]) -> None:
        """Write a whole response."""
        if self.server_state.default_headers is not self._defaults:
            self._refresh_defaults()
        size = sum(map(len, parts))
        head = self._ok_head
        if status != 200:
            head = b"%b%b%b" % (STATUS_LINE[status], self._default_lines, _JSON_HEADERS)
        pieces = (head, b"%d\r\n\r\n" % size, *parts)
        if size < _JOIN_LIMIT:
            self.transport.write(b"".join(pieces))
        else:
            self.transport.writelines(pieces)
        self._end()

    @property
    def is_slow(self) -> bool:
        """True while the reader has not read all that was written."""
        return self.flow.write_paused

    def begin_stream(self) -> None:
        """Write the head of a stream of events, in chunked encoding."""
        self._refresh_defaults()
        chunked = b"transfer-encoding: chunked\r\n\r\n"
        self.transport.write(STATUS_LINE[200] + self._default_lines + _STREAM_HEADERS + chunked)

    def send_chunk(self, chunk: bytes, *, last: bool = False) -> None:
        """Write a chunk."""
        self.transport.writelines((b"%x\r\n" % len(chunk), chunk, b"\r\n"))
        if last:
            self.transport.write(b"0\r\n\r\n")
            self._end()

    async def wait_writable(self) -> None:
        """Wait while the reader is slow."""
        if self.flow.write_paused:
            await self.flow.drain()

    def hand_over(self, app: App) -> Send:
        """Let this app respond over ASGI from now on, and return its `send`."""
        scope: Any = {"type": "http", "http_version": "1.1", "method": "POST"}
        scope[ON_DISCONNECT] = self.disconnect_callbacks
        cycle = self.cycle = RequestResponseCycle(
            scope=scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=True,
            on_response=self.on_response_complete,
        )
        cycle.more_body = False
        task = self.loop.create_task(cycle.run_asgi(cast(Any, app)))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)
        self.call = None
        self._schedule_buffered()
        return cast(Send, cycle.send)

    def _is_ordinary(self) -> bool:
        """True for a POST on a persistent connection that is not busy."""
        parser = self.parser
        return (
            parser.get_method() == b"POST"
            and not self.is_busy
            and not self.flow.write_paused
            and not self.expect_100_continue
            and parser.should_keep_alive()
            and parser.get_http_version() == "1.1"
            and not parser.should_upgrade()
        )

    def _serve_known_head(self, data: bytes) -> bool:
        """Serve a request whose headers are known; return False if it must be parsed."""
        end = data.find(_HEAD_END) + len(_HEAD_END)
        entry = self._known_heads.get(data[:end])
        if entry is None or len(data) - end != entry.length:
            return False
        cycle: RequestResponseCycle | None = self.cycle
        if (cycle is not None and not cycle.response_complete) or self.flow.write_paused:
            return False
        self._unset_keepalive_if_required()
        if self._accept(entry.head, data[end:], entry.principal, entry.data, self) is None:
            self.requests += 1
            return True
        self._use_app = True
        return False

    def _remember_head(self, data: bytes) -> None:
        """Remember the headers of a plain request that arrived alone and whole."""
        entry = self._served_entry
        end = data.find(_HEAD_END) + len(_HEAD_END)
        if entry is None or len(data) - end != entry.length:
            return
        if end > _MAX_HEAD_BYTES or data[:5] != b"POST ":
            return
        if len(self._known_heads) >= _MAX_KNOWN_HEADS:
            self._known_heads.clear()
        self._known_heads[data[:end]] = entry

    def _end(self) -> None:
        self.server_state.total_requests += 1
        self.call = None
        if self._closes_after:
            self.transport.close()
        else:
            self._schedule_buffered()

    def _schedule_buffered(self) -> None:
        if self._buffered:
            # Not from within the response: the next one may be as quick, and would recurse.
            self.loop.call_soon(self._receive_buffered)

    def _receive_buffered(self) -> None:
        buffered, self._buffered = bytes(self._buffered), bytearray()
        if not self.transport.is_closing():
            self.transport.resume_reading()
            self.data_received(buffered)

    def _pass_to_app(self) -> None:
        self._held_entry = None
        super().on_headers_complete()
        if self._body:
            super().on_body(self._body)
        if self._is_complete:
            super().on_message_complete()

    def _refresh_defaults(self) -> None:
        """Encode the default headers of every response again: the date has changed."""
        self._defaults = defaults = self.server_state.default_headers
        self._default_lines = b"".join(b"%b: %b\r\n" % header for header in defaults)
        self._ok_head = b"%b%b%b" % (STATUS_LINE[200], self._default_lines, _JSON_HEADERS)
        self._closes_after = CLOSE in defaults

    @property
    def is_busy(self) -> bool:
        """True while a response is pending."""
        return self.call is not None or super().is_busy

    @property
    def is_incomplete(self) -> bool:
        """True while the rest of a request is needed to respond."""
        return self._held_entry is not None or super().is_incomplete
