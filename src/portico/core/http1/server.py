"""An HTTP/1.1 server for one endpoint, over listening sockets."""

import asyncio
import socket
from collections.abc import Iterable, Sequence
from email.utils import formatdate
from functools import partial
from http import HTTPStatus
from time import time

from portico.core.http1.connection_cap import ConnectionCap
from portico.core.http1.memory_budget import MemoryBudget
from portico.core.http1.port import JSON_TYPE, HttpEndpoint
from portico.core.http1.server_connection import ServerConnection
from portico.core.http1.server_limits import ServerLimits
from portico.core.http1.timed_connection import TimedConnection

BACKLOG = 2048
_STATUS_LINES = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status, status.phrase.encode()) for status in HTTPStatus
}


class Http1Server:
    """Accepts connections; each of them serves itself."""

    def __init__(
        self, endpoint: HttpEndpoint, limits: ServerLimits, cap: ConnectionCap, unread: MemoryBudget
    ) -> None:
        """`cap` counts the connections; `unread` is the budget of responses not read yet."""
        self.endpoint = endpoint
        self.limits = limits
        self.cap = cap
        self.unread = unread
        self.connections: set[TimedConnection] = set()
        self.keeps_alive = True
        """False once each connection is closed after its next response."""
        self.loop = asyncio.get_running_loop()
        self._servers: list[asyncio.Server] = []
        self._second = 0
        self._date = self._ok_head = b""
        self._is_empty: asyncio.Future[None] | None = None

    async def start(self, sockets: Sequence[socket.socket]) -> None:
        """Accept connections on these sockets."""
        for each in sockets:
            accept = partial(ServerConnection, self)
            self._servers.append(await self.loop.create_server(accept, sock=each, backlog=BACKLOG))

    def stop_accepting(self) -> None:
        """Accept no new connections; keep the open ones."""
        for server in self._servers:
            server.close()

    async def close(self, within_s: float) -> None:
        """Close all connections; those with a pending response have this time to write it."""
        self.stop_accepting()
        self.keeps_alive = False
        for connection in tuple(self.connections):
            if not connection.exchanges:
                connection.transport.close()
        if self.connections:
            self._is_empty = self.loop.create_future()
            await asyncio.wait((self._is_empty,), timeout=within_s)
        for connection in tuple(self.connections):
            connection.transport.abort()

    def forget(self, connection: TimedConnection) -> None:
        """Forget a connection that was closed."""
        self.cap.remove(connection)
        self.connections.discard(connection)
        if self._is_empty is not None and not self.connections and not self._is_empty.done():
            self._is_empty.set_result(None)

    def ok_head(self) -> bytes:
        """Return the head of a JSON response of 200, up to its length."""
        if int(time()) != self._second:
            self._refresh()
        return self._ok_head

    def head(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
        """Return the head of a response."""
        if int(time()) != self._second:
            self._refresh()
        lines = [b"%b: %b\r\n" % header for header in headers]
        return b"".join((_STATUS_LINES[status], self._date, *lines, b"\r\n"))

    def _refresh(self) -> None:
        """Write the date of the current second."""
        self._second = int(time())
        self._date = b"date: %b\r\n" % formatdate(self._second, usegmt=True).encode()
        kind = b"%b: %b\r\n" % JSON_TYPE
        self._ok_head = b"".join((_STATUS_LINES[200], self._date, kind, b"content-length: "))
