"""The connections to one origin: reused while they are open, and closed soon after."""

import asyncio
from collections.abc import Callable, Mapping

from portico.core.http1.body import FileBody
from portico.core.http1.connection import Http1Connection
from portico.core.http1.dial import Permit, dial, permit_all
from portico.core.http1.errors import InvalidRequest
from portico.core.http1.headers import header_problem
from portico.core.http1.proxies import Proxy, proxy_for
from portico.core.http1.response import Http1Response
from portico.core.http1.slots import Slots
from portico.core.http1.url import Origin, parse_url

MAX_CONNECTIONS = 128
"""Connections with a pending request; further requests wait for one. This is above the limit of
suspended calls (`UpstreamPolicy`), so that calls that wait for a person do not block others."""
MAX_IDLE = 20
"""Idle connections that are kept; a sweep closes the others."""
IDLE_S = 4.0
"""Servers commonly close an idle connection after 5 s; a request sent at that moment is lost."""
SWEEP_S = 1.0
_MAX_HEADS = 64
_CLOSED = "the connection pool is closed"
_DEFAULTS = {
    "accept": "*/*",
    # Identity, so that the limits count the bytes that arrive: there is no bomb to unpack.
    "accept-encoding": "identity",
    "connection": "keep-alive",
    "user-agent": "portico",
}


Body = bytes | FileBody | Callable[[], bytes]
"""Bytes, a part of a file, or a function that makes the bytes when they are sent."""


class Pool:
    """Sends requests to one origin, none twice. It keeps no cookies and follows no redirects."""

    def __init__(
        self,
        headers: Mapping[str, str],
        connect_s: float,
        *,
        is_direct: bool = False,
        max_connections: int = MAX_CONNECTIONS,
        permit: Permit = permit_all,
    ) -> None:
        """Send `headers` with each request; `is_direct` ignores proxies; `permit` is called for
        each address before it is contacted."""
        self._headers = headers
        self._credentials: Mapping[str, str] = {}
        self._connect_s = connect_s
        self._is_direct = is_direct
        self._permit = permit
        self._route: tuple[Origin, Proxy | None] | None = None
        self._heads: dict[tuple[object, ...], bytes] = {}
        self._idle: list[Http1Connection] = []
        self.connections: set[Http1Connection] = set()
        self.slots = Slots(max_connections)
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        content: Body | None = None,
        *,
        is_exempt: bool = False,
    ) -> Http1Response:
        """Send a request, on a new connection if none is idle; raises Http1Error.

        It waits for a slot without a timeout. An exempt request takes no slot: a stream that stays
        open, or a message that other requests depend on.
        """
        head = self._head(method, url, headers)
        if not is_exempt:
            await self.slots.acquire()
        try:
            if self._is_closed:
                raise InvalidRequest(_CLOSED)
            connection = self._idle_connection() or await self._new()
        except BaseException:
            if not is_exempt:
                self.slots.release()
            raise
        if not is_exempt:
            connection.release = self.slots.release
            if not connection.is_open:
                connection.release_slot()
        return connection.send(*_request(head, content))

    def begin(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        content: Body | None,
        on_ready: Callable[[Http1Response], None],
    ) -> Http1Response | None:
        """Send a request on an idle connection; None if there is none. Raises InvalidRequest."""
        head = self._head(method, url, headers)
        slots = self.slots
        connection = self._idle_connection() if slots.used < slots.limit else None
        if connection is None:
            return None
        slots.used += 1
        connection.release = slots.release
        return connection.send(*_request(head, content), on_ready)

    def use_credentials(self, name: str, value: str) -> None:
        """Send this header from now on, none if it is empty; the one before is forgotten."""
        self._credentials = {name: value} if value else {}
        self._heads.clear()

    async def close(self) -> None:
        """Close all connections; pending responses fail."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for connection in tuple(self.connections):
            connection.abort()
        self._idle.clear()
        await asyncio.sleep(0)  # sockets are closed a moment later

    async def _new(self) -> Http1Connection:
        assert self._route is not None
        origin, proxy = self._route
        connection = await dial(origin, proxy, self._make, self._connect_s, self._permit)
        if self._is_closed:
            connection.abort()
            raise InvalidRequest(_CLOSED)
        if connection.is_open:
            self.connections.add(connection)
        return connection

    def _make(self) -> Http1Connection:
        return Http1Connection(self._on_idle, self._on_closed)

    def _idle_connection(self) -> Http1Connection | None:
        """Take an idle connection that is still open, the latest first."""
        if not self._idle:
            return None
        now = asyncio.get_running_loop().time()
        while self._idle:
            connection = self._idle.pop()
            if _is_fresh(connection, now) and connection.is_alive():
                return connection
            connection.abort()
        return None

    def _on_idle(self, connection: Http1Connection) -> None:
        if self._is_closed:
            connection.abort()
            return
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._idle.append(connection)
        connection.release_slot()
        if self._timer is None:
            self._timer = loop.call_later(SWEEP_S, self._sweep)

    def _on_closed(self, connection: Http1Connection) -> None:
        self.connections.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        connection.release_slot()

    def _sweep(self) -> None:
        """Close connections that were idle for too long, the oldest first."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        surplus = len(self._idle) - MAX_IDLE
        for number, connection in enumerate(tuple(self._idle)):
            if number < surplus or not _is_fresh(connection, now):
                connection.abort()
                self._idle.remove(connection)
        self._timer = loop.call_later(SWEEP_S, self._sweep) if self._idle else None

    def _head(self, method: str, url: str, headers: Mapping[str, str]) -> bytes:
        """Return the head of a request, cached for requests with the same headers."""
        key = (method, url, *headers.items())
        head = self._heads.get(key)
        if head is None:
            head = self._new_head(method, url, headers)
            if len(self._heads) >= _MAX_HEADS:
                self._heads.clear()
            self._heads[key] = head
        return head

    def _new_head(self, method: str, url: str, headers: Mapping[str, str]) -> bytes:
        target = parse_url(url)
        if self._route is None:
            proxy = None if self._is_direct else proxy_for(target.origin)
            self._route = target.origin, proxy
        origin, proxy = self._route
        if target.origin != origin:
            raise InvalidRequest("its URL points to another host")
        by_name = {"host": ("host", origin.shown)}
        parts = (_DEFAULTS, self._headers, self._credentials, headers)
        for name, value in (pair for part in parts for pair in part.items()):
            by_name[name.lower()] = name, value
        if target.login:
            by_name["authorization"] = "authorization", target.login
        path = target.path
        if proxy is not None and origin.scheme == "http":
            path = f"http://{origin.shown}{path}"
            if proxy.login:
                by_name["proxy-authorization"] = "proxy-authorization", proxy.login
        for name, value in by_name.values():
            if why := header_problem(name, value):
                raise InvalidRequest(why)
        lines = (f"{name}: {value}\r\n" for name, value in by_name.values())
        return f"{method} {path} HTTP/1.1\r\n{''.join(lines)}".encode()


def _is_fresh(connection: Http1Connection, now: float) -> bool:
    return now - connection.idle_since < min(IDLE_S, connection.keep_alive_s)


def _request(head: bytes, content: Body | None) -> tuple[bytes, bytes | FileBody]:
    if content is None:
        return head + b"\r\n", b""
    if isinstance(content, FileBody):
        return b"%bcontent-length: %d\r\n\r\n" % (head, content.size), content
    body = content() if callable(content) else content
    return b"%bcontent-length: %d\r\n\r\n" % (head, len(body)), body
