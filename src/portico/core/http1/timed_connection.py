"""The timeouts of one server connection: slow senders, idle clients and stalled readers."""

import asyncio
from enum import Enum
from typing import TYPE_CHECKING, cast

from portico.core.http1.memory_budget import GRACE_S, Allotment
from portico.core.http1.server_exchange import ServerExchange

if TYPE_CHECKING:
    from portico.core.http1.server import Http1Server


class Stage(Enum):
    """The part of a request that the client sends next."""

    NEW = "the first byte"
    HEAD = "the rest of the headers"
    BODY = "the rest of the body"
    IDLE = "nothing, or another request"


_NEW, _HEAD, _BODY, _IDLE = Stage  # members of an enum are slow to look up


class TimedConnection(asyncio.Protocol):
    """Watches how fast a client sends and reads; a subclass parses what it sends."""

    def __init__(self, server: "Http1Server") -> None:
        self.server = server
        self.limits = server.limits
        self.transport: asyncio.Transport
        self.stage = _NEW
        self.exchanges: list[ServerExchange] = []
        """The first one is served, the last one may be incomplete."""
        self.requests = 0
        """The number of requests received."""
        self._requests_at_check = 0
        self._head_size = 0
        self._body_advanced = False  # has any body data arrived since the last check?
        self._allotment: Allotment | None = None  # of the memory for unread responses
        self._timer: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self.writable: asyncio.Future[None] | None = None
        """Pending while the reader is slow."""

    def refuse(self, status: int) -> None:
        """End the connection with this status, after the responses to earlier requests."""
        raise NotImplementedError

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the timeout of a new connection."""
        # Transports of uvloop do not subclass those of asyncio.
        self.transport = cast("asyncio.Transport", transport)
        self._set_timer(self.limits.header_s)
        self.server.connections.add(self)
        self.server.cap.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Release everything."""
        self.server.forget(self)
        self.resume_writing()
        if self._timer is not None:
            self._timer.cancel()

    def pause_writing(self) -> None:
        """Start the timeout of a slow reader, and account for the unread data."""
        loop, unread = self.server.loop, self.server.unread
        if self.writable is None:
            self.writable = loop.create_future()
        waiting = self.transport.get_write_buffer_size()
        if self._stall is None:
            self._stall = loop.call_later(self.limits.stall_s, self._stalled, waiting)
        if self._allotment is None:
            self._allotment = unread.open(self.transport.abort)
            if not unread.take(self._allotment, waiting):
                unread.overdraw(self._allotment, waiting)
                loop.call_later(GRACE_S, unread.trim)  # slow readers are known then

    def resume_writing(self) -> None:
        """Stop the timeout: the reader has caught up, or has left."""
        if self._allotment is not None:
            self.server.unread.close(self._allotment)
            self._allotment = None
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
        if self.writable is not None:
            if not self.writable.done():
                self.writable.set_result(None)
            self.writable = None

    @property
    def is_behind(self) -> bool:
        """True while what arrives waits for an earlier response, or for the client to read it."""
        exchanges = self.exchanges
        if not exchanges:
            return self.writable is not None
        return exchanges[0].is_received or len(exchanges) > 1 or self.writable is not None

    # The connection as the cap sees it.

    @property
    def is_idle(self) -> bool:
        """True between requests."""
        return self.stage is _IDLE and not self.exchanges

    def evict(self) -> None:
        """Close the connection to make room for another."""
        self.transport.close()

    def check_progress(self, before: Stage, size: int) -> None:
        """Apply limits to the rest of a request, after `size` more bytes of it arrived."""
        stage = self.stage
        if stage is _HEAD:
            self.server.cap.begin_head(self)
        else:
            self.server.cap.end_head(self)
        if stage is _IDLE:
            return
        if stage is not before:
            self._set_timer(self.limits.body_s if stage is _BODY else self.limits.header_s)
            if stage is _BODY:
                self._head_size = 0
                return
        if stage is _BODY and not self.exchanges[-1].has_header(b"transfer-encoding"):
            return
        # Of chunks, data that is neither body nor its end is limited like headers: it may be
        # trailers.
        self._head_size = 0 if self._body_advanced else self._head_size + size
        self._body_advanced = False
        if self._head_size > self.limits.header_bytes:
            self.refuse(431)

    def _set_timer(self, within_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.server.loop.call_later(within_s, self._on_timeout)

    def _on_timeout(self) -> None:
        """Close an idle connection, or one whose request has timed out."""
        if self.is_behind:
            self._set_timer(self.limits.keep_alive_s)
        elif self.stage is _HEAD or self.stage is _BODY:
            self.refuse(408)
        elif self.requests == self._requests_at_check:
            self.transport.close()
        else:
            # Requests do not reset the timer, so an idle connection gets up to twice its time.
            self._requests_at_check = self.requests
            self._set_timer(self.limits.keep_alive_s)

    def _stalled(self, before: int) -> None:
        """Disconnect a reader that has read nothing; give a slow one more time."""
        waiting = self.transport.get_write_buffer_size()
        if waiting >= before:
            self.transport.abort()
        else:
            loop = self.server.loop
            self._stall = loop.call_later(self.limits.stall_s, self._stalled, waiting)
