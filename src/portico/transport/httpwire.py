"""One HTTP connection: uvicorn's, made patient only so far, and quicker with what is static."""

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import Any, cast

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.server import ServerState

from portico.transport.asgi import GONE, Scope, Send
from portico.transport.http import HttpApp
from portico.transport.plain import Asked, Entry
from portico.transport.sessioncall import SessionCall
from portico.transport.swift import App, Swift

_HEAD_ENDS = b"\r\n\r\n"
_MOST_HEADS = 8
_LONGEST_HEAD = 4096
_JOINED = 64 * 1024
"""Up to this size, one copy costs less than many pieces."""
_JSON = b"content-type: application/json\r\ncontent-length: "
_TOO_LATE = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_TOO_LONG = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"connection: close\r\ncontent-length: 0\r\n\r\n"
)


class Stage(Enum):
    """What is expected of the client."""

    NEW = "the first byte"
    HEAD = "the rest of the headers"
    BODY = "the rest of the body"
    IDLE = "nothing, or another request"


class HttpWire(HttpToolsProtocol):
    """Bounds what uvicorn leaves unbounded: slow or endless headers, stalled readers.

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
        self._http = config.app
        self._limits = config.app.limits
        self._stage = Stage.NEW
        self._head_size = 0
        self._requests = self._seen = 0
        self._watch: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._gone: set[Callable[[], None]] = set()
        self._held: Entry | None = None  # of a request not yet given to the app
        self._body = b""
        self._whole = False  # has all of it come?
        self._asked: Asked | None = None
        self._usual = False  # is the app to have the next one in any case?
        self._served: Entry | None = None  # the latest that went without the app
        self._heads: dict[bytes, Entry] = {}
        self._call: Swift | SessionCall | None = None
        self._later = bytearray()  # what came while it was answered
        self._defaults: list[tuple[bytes, bytes]] = []
        self._default_lines = b""
        self._ok = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected; it does not have for ever."""
        super().connection_made(transport)
        self._arm(self._limits.header_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has left."""
        for timer in (self._watch, self._stall):
            if timer is not None:
                timer.cancel()
        self._held = None
        if self._call is not None:
            self._call.gone()
        super().connection_lost(exc)
        for tell in tuple(self._gone):
            tell()

    def data_received(self, data: bytes) -> None:
        """Parse; what is still held back afterwards is begun, or goes its usual way."""
        if self._call is not None or self._later:
            self._later += data  # its turn comes
            if len(self._later) > self._limits.header_bytes:
                self.transport.pause_reading()
            return
        before = self._stage
        if before is Stage.IDLE and self._heads and self._served_again(data):
            return
        self._served = None
        super().data_received(data)
        self._usual = False
        entry = self._held
        if entry is not None and (self._whole or entry.length > _JOINED) and not self._begun():
            self._release()
        if before is Stage.IDLE or before is Stage.NEW:
            self._remember(data)
        stage = self._stage
        if stage is Stage.IDLE:
            return
        if stage is not before:
            self._arm(self._limits.body_s if stage is Stage.BODY else self._limits.header_s)
        if stage is Stage.HEAD:
            self._head_size += len(data)
            if self._head_size > self._limits.header_bytes:
                self._refuse(_TOO_LONG)

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        if self._held is not None:
            self._release()  # another request came with it: first things first
        self._stage = Stage.HEAD
        self._head_size = 0
        super().on_message_begin()
        cast(Scope, self.scope)[GONE] = self._gone

    def on_headers_complete(self) -> None:
        """Hold back what may be served without the app; give the rest to it."""
        self._stage = Stage.BODY
        if self.url == self._http.target and not self._usual and self._is_ordinary():
            self._held = self._http.plain.entry(cast(Scope, self.scope))
        if self._held is not None:
            self._whole = False
            self._asked = None
            self._body = b""
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        if self._held is not None:
            self._body = self._body + body if self._body else body
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The whole request is here."""
        self._stage = Stage.IDLE
        self._requests += 1
        entry = self._held
        if entry is None:
            super().on_message_complete()
            return
        self._whole = True
        asked = self._asked = self._http.plain.read(entry, self._body)
        parts = None if asked is None else self._http.plain.answer(asked, entry)
        if parts is not None:
            self._held, self._served = None, entry
            self.answer(200, parts)

    def pause_writing(self) -> None:
        """The reader is slow; if it stops altogether, it is gone."""
        super().pause_writing()
        if self._stall is None:
            self._stall = self.loop.call_later(self._limits.stall_s, self.transport.abort)

    def resume_writing(self) -> None:
        """The reader has caught up."""
        super().resume_writing()
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    # The connection, as a swift call sees it.

    def answer(self, status: int, parts: tuple[bytes, ...]) -> None:
        """Write a whole response."""
        size = sum(map(len, parts))
        always = self._always
        head = self._ok if status == 200 else b"%b%b%b" % (STATUS_LINE[status], always, _JSON)
        pieces = (head, b"%d\r\n\r\n" % size, *parts)
        if size < _JOINED:
            self.transport.write(b"".join(pieces))
        else:
            self.transport.writelines(pieces)
        self._end()

    def begin_stream(self, headers: bytes) -> None:
        """Write the head of a response in chunks."""
        chunked = b"transfer-encoding: chunked\r\n\r\n"
        self.transport.write(b"".join((STATUS_LINE[200], self._always, headers, chunked)))

    def say(self, chunk: bytes, *, last: bool = False) -> None:
        """Write a chunk."""
        self.transport.writelines((b"%x\r\n" % len(chunk), chunk, b"\r\n"))
        if last:
            self.transport.write(b"0\r\n\r\n")
            self._end()

    async def room(self) -> None:
        """Wait while the reader is slow."""
        if self.flow.write_paused:
            await self.flow.drain()

    def hand_over(self, app: App) -> Send:
        """Let this app respond in the usual way, from now on; where it will send to."""
        scope: Any = {"type": "http", "http_version": "1.1", "method": "POST", GONE: self._gone}
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
        self._call = None
        self._take_up()
        return cast(Send, cycle.send)

    def _is_ordinary(self) -> bool:
        """True for a POST that nothing else is under way with, on a connection that stays."""
        parser = self.parser
        return (
            parser.get_method() == b"POST"
            and not self._busy
            and not self.flow.write_paused
            and not self.expect_100_continue
            and parser.should_keep_alive()
            and parser.get_http_version() == "1.1"
            and not parser.should_upgrade()
        )

    def _served_again(self, data: bytes) -> bool:
        """Serve a request whose headers are known; False if it has to be parsed."""
        end = data.find(_HEAD_ENDS) + len(_HEAD_ENDS)
        entry = self._heads.get(data[:end])
        if entry is None or len(data) - end != entry.length:
            return False
        if self._busy or self.flow.write_paused:
            return False
        self._unset_keepalive_if_required()
        plain = self._http.plain
        asked = plain.read(entry, data[end:])
        if asked is not None:
            parts = plain.answer(asked, entry)
            if parts is not None:
                self._requests += 1
                self.answer(200, parts)
                return True
            self._call = plain.begin(asked, entry, self)
            if self._call is not None:
                self._requests += 1
                return True
        self._usual = True
        return False

    def _begun(self) -> bool:
        """Begin a call without the app; False if it has to go there."""
        entry, asked = self._held, self._asked
        if entry is None or asked is None:
            return False
        self._call = self._http.plain.begin(asked, entry, self)
        if self._call is None:
            return False
        self._served, self._held, self._asked = entry, None, None
        return True

    def _remember(self, data: bytes) -> None:
        """Know these headers again, if they and their body were all that came, and plain."""
        entry = self._served
        end = data.find(_HEAD_ENDS) + len(_HEAD_ENDS)
        if entry is None or len(data) - end != entry.length:
            return
        if end > _LONGEST_HEAD or data[:5] != b"POST ":
            return
        if len(self._heads) >= _MOST_HEADS:
            self._heads.clear()
        self._heads[data[:end]] = entry

    def _end(self) -> None:
        self.server_state.total_requests += 1
        self._call = None
        self._take_up()

    def _take_up(self) -> None:
        if self._later:
            # Not from within the answer: the next request may be answered as quickly.
            self.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        later, self._later = bytes(self._later), bytearray()
        if not self.transport.is_closing():
            self.transport.resume_reading()
            self.data_received(later)

    def _release(self) -> None:
        self._held = self._asked = None
        super().on_headers_complete()
        if self._body:
            super().on_body(self._body)
        if self._whole:
            super().on_message_complete()

    @property
    def _always(self) -> bytes:
        """The headers that every response has."""
        defaults = self.server_state.default_headers
        if defaults is not self._defaults:  # the date has moved on
            self._defaults = defaults
            self._default_lines = b"".join(b"%b: %b\r\n" % header for header in defaults)
            self._ok = b"%b%b%b" % (STATUS_LINE[200], self._default_lines, _JSON)
        return self._default_lines

    @property
    def _busy(self) -> bool:
        """True while the app is answering."""
        if self._call is not None:
            return True
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def _arm(self, within_s: float) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._watch = self.loop.call_later(within_s, self._look)

    def _look(self) -> None:
        """Close what has kept us waiting for too long."""
        if self._stage is Stage.IDLE:
            # No clock is set for every request, so an idle connection gets up to twice its time.
            idle = self._requests == self._seen and not self._busy
            self._seen = self._requests
            if idle:
                self.transport.close()
            else:
                self._arm(self._limits.keep_alive_s)
            return
        # No second status for what is being answered, or was.
        if self._stage is Stage.HEAD:
            may_speak = not self._busy
        else:
            waits = self._busy and not self.cycle.response_started
            may_speak = waits or self._held is not None
        if may_speak:
            self._refuse(_TOO_LATE)
        else:
            self.transport.close()

    def _refuse(self, response: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(response)
            self.transport.close()
