"""One HTTP connection: uvicorn's, watched, and quicker with what is plain."""

import asyncio
from typing import Any, cast

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle
from uvicorn.server import ServerState

from portico.transport.asgi import CLOSE, ON_DISCONNECT, Scope, Send
from portico.transport.events import EVENT_STREAM
from portico.transport.http_app import HttpApp
from portico.transport.http_timeouts import Stage, TimedHttpConnection
from portico.transport.posts import Entry
from portico.transport.response_writer import App, RespondingCall

_HEAD_END = b"\r\n\r\n"
_MAX_KNOWN_HEADS = 8
_MAX_HEAD_BYTES = 4096
_JOIN_LIMIT = 64 * 1024
"""Up to this size, one copy costs less than many pieces."""
_STREAM_HEADERS = b"".join(b"%b: %b\r\n" % header for header in EVENT_STREAM)
_JSON_HEADERS = b"content-type: application/json\r\ncontent-length: "


class HttpConnection(TimedHttpConnection):
    """Serves the app, and without it what is plain.

    A plain request is served without a task, unless its body is large: what is static is
    answered on the spot, a call when its answer comes. Headers that have come before on this
    connection, byte for byte, are not parsed again.
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
        self._held_entry: Entry | None = None  # of a request not yet given to the app
        self._body = b""
        self._is_complete = False  # has all of it come?
        self._use_app = False  # is the app to have the next one in any case?
        self._served_entry: Entry | None = None  # the latest that went without the app
        self._known_heads: dict[bytes, Entry] = {}
        self.call: RespondingCall | None = None
        self._buffered = bytearray()  # what came while it was answered
        self._defaults: list[tuple[bytes, bytes]] = []
        self._default_lines = b""
        self._ok_head = b""
        self._closes_after = False  # does the response being written end the connection?

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has left."""
        self._held_entry = None
        if self.call is not None:
            self.call.on_disconnect()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse; what is still held back afterwards is begun, or goes its usual way."""
        if self.call is not None or self._buffered:
            self._buffered += data  # its turn comes
            if len(self._buffered) > self.limits.header_bytes:
                self.transport.pause_reading()
            return
        before = self.stage
        if before is Stage.IDLE and self._known_heads and self._serve_known_head(data):
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
        if before is Stage.IDLE or before is Stage.NEW:
            self._remember_head(data)
        if self.stage is not before or self.stage is not Stage.IDLE:
            self.check_progress(before, len(data))

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        if self._held_entry is not None:
            self._pass_to_app()  # another request came with it: first things first
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Hold back what may be served without the app; give the rest to it."""
        self.stage = Stage.BODY
        if self.url == self._app.target and not self._use_app and self._is_ordinary():
            entry = self._app.entry(cast(Scope, self.scope))
            # A large body takes of the memory for all, which the app looks after.
            self._held_entry = entry if entry is not None and entry.length <= _JOIN_LIMIT else None
        if self._held_entry is not None:
            self._is_complete = False
            self._body = b""
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of the body; one that comes in several is for the app to put together."""
        if self._held_entry is not None and not self._body:
            self._body = body
            return
        if self._held_entry is not None:
            self._pass_to_app()
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The whole request is here."""
        self.stage = Stage.IDLE
        self.requests += 1
        if self._held_entry is None:
            super().on_message_complete()
        else:
            self._is_complete = True

    # The connection, as a call sees it: a line.

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
        """True while the reader has yet to take what was written."""
        return self.flow.write_paused

    def begin_stream(self) -> None:
        """Write the head of a stream of events, which comes in chunks."""
        self._refresh_defaults()
        chunked = b"transfer-encoding: chunked\r\n\r\n"
        self.transport.write(
            b"".join((STATUS_LINE[200], self._default_lines, _STREAM_HEADERS, chunked))
        )

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
        """Let this app respond in the usual way, from now on; where it will send to."""
        scope: Any = {
            "type": "http",
            "http_version": "1.1",
            "method": "POST",
            ON_DISCONNECT: self.disconnect_callbacks,
        }
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
        """True for a POST that nothing else is under way with, on a connection that stays."""
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
        """Serve a request whose headers are known; False if it has to be parsed."""
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
        """Know these headers again, if they and their body were all that came, and plain."""
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
            # Not from within the answer: the next request may be answered as quickly.
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
        """Have the headers that every response has, as they are now: the date moves on."""
        self._defaults = defaults = self.server_state.default_headers
        self._default_lines = b"".join(b"%b: %b\r\n" % header for header in defaults)
        self._ok_head = b"%b%b%b" % (STATUS_LINE[200], self._default_lines, _JSON_HEADERS)
        self._closes_after = CLOSE in defaults

    @property
    def is_busy(self) -> bool:
        """True while a request is being answered."""
        return self.call is not None or super().is_busy

    @property
    def is_incomplete(self) -> bool:
        """True while the rest of a request is needed to answer it."""
        return self._held_entry is not None or super().is_incomplete
