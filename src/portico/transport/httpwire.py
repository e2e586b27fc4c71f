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

from portico.transport.asgi import GONE, Scope
from portico.transport.http import CALL_HEADERS, STATIC_HEADERS, HttpApp
from portico.transport.swift import Swift

_HELD = STATIC_HEADERS | CALL_HEADERS
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

    A request for something static whose body came with its headers is answered on the spot,
    without a task, and its bytes go out as they lie in the catalog.
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
        self._held = False  # is the request not yet given to the app?
        self._body = b""
        self._whole = False  # has all of it come?
        self._swift: Swift | None = None
        self._later = bytearray()  # what came while it was answered
        self._defaults: list[tuple[bytes, bytes]] = []
        self._default_lines = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected; it does not have for ever."""
        super().connection_made(transport)
        self._arm(self._limits.header_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has left."""
        for timer in (self._watch, self._stall):
            if timer is not None:
                timer.cancel()
        self._held = False
        if self._swift is not None:
            self._swift.gone()
        super().connection_lost(exc)
        for tell in tuple(self._gone):
            tell()

    def data_received(self, data: bytes) -> None:
        """Parse; what is still held back afterwards is begun, or goes its usual way."""
        if self._swift is not None:
            self._later += data  # its turn comes
            if len(self._later) > self._limits.header_bytes:
                self.transport.pause_reading()
            return
        before = self._stage
        super().data_received(data)
        if self._held and not (self._whole and self._begin()):
            self._release()
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
        if self._held:
            self._release()  # another request came with it: first things first
        self._stage = Stage.HEAD
        self._head_size = 0
        super().on_message_begin()
        cast(Scope, self.scope)[GONE] = self._gone

    def on_headers_complete(self) -> None:
        """Hold back what may be answered on the spot; give the rest to the app."""
        self._stage = Stage.BODY
        if (
            self.url == self._http.target
            and not _HELD.isdisjoint(self.headers)
            and not self._busy
            and not self.flow.write_paused
            and not self.expect_100_continue
            and self.parser.should_keep_alive()
            and not self.parser.should_upgrade()
        ):
            self._held = True
            self._whole = False
            self._body = b""
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        if self._held:
            self._body = self._body + body if self._body else body
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The whole request is here."""
        self._stage = Stage.IDLE
        self._requests += 1
        if not self._held:
            super().on_message_complete()
            return
        self._whole = True
        if not STATIC_HEADERS.isdisjoint(self.headers):
            parts = self._http.at_once(cast(Scope, self.scope), self._body)
            if parts is not None:
                self._held = False
                self.answer(200, parts)
            else:
                self._release()

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
        length = b"content-type: application/json\r\ncontent-length: %d\r\n\r\n"
        head = (STATUS_LINE[status], self._always, length % sum(map(len, parts)))
        self.transport.writelines((*head, *parts))
        self._end()

    def begin_stream(self, headers: bytes) -> None:
        """Write the head of a response in chunks."""
        chunked = b"transfer-encoding: chunked\r\n\r\n"
        self.transport.writelines((STATUS_LINE[200], self._always, headers, chunked))

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

    def _begin(self) -> bool:
        """Begin a call without the app; False if it has to go there."""
        self._swift = self._http.swift(cast(Scope, self.scope), self._body, self)
        if self._swift is None:
            return False
        self._held = False
        return True

    def _end(self) -> None:
        self.server_state.total_requests += 1
        if self._swift is None:
            return
        self._swift = None
        if self._later:
            # Not from within the answer: the next request may be answered as quickly.
            self.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        later, self._later = bytes(self._later), bytearray()
        if not self.transport.is_closing():
            self.transport.resume_reading()
            self.data_received(later)

    def _release(self) -> None:
        self._held = False
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
        return self._default_lines

    @property
    def _busy(self) -> bool:
        """True while the app is answering."""
        if self._swift is not None:
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
            may_speak = self._busy and not self.cycle.response_started
        if may_speak:
            self._refuse(_TOO_LATE)
        else:
            self.transport.close()

    def _refuse(self, response: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(response)
            self.transport.close()
