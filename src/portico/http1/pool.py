"""The connections to one origin: asked again while they are open, and not kept for long."""

import asyncio
from collections.abc import Callable, Mapping

from portico.http1.connection import Http1Connection
from portico.http1.dial import dial
from portico.http1.errors import InvalidRequest
from portico.http1.headers import unfit_header
from portico.http1.proxies import Proxy, proxy_for
from portico.http1.response import Http1Response
from portico.http1.slots import Slots
from portico.http1.url import Origin, parse

MAX_CONNECTIONS = 128
"""Connections with a request under way; further requests wait for one of them. More than calls may
be held (`UpstreamPolicy`), so that those which wait for a person keep no others from being sent."""
MAX_IDLE = 20
"""Connections kept for later; more of them only from one moment to the next."""
IDLE_S = 4.0
"""Servers commonly close a connection after 5 s: what is sent at that moment would be lost."""
LOOK_S = 1.0
_MAX_HEADS = 64
_CLOSED = "all connections are closed"
_DEFAULTS = {
    "accept": "*/*",
    # Identity, so that what is counted is what arrives: there is no bomb to unpack.
    "accept-encoding": "identity",
    "connection": "keep-alive",
    "user-agent": "portico",
}


Body = bytes | Callable[[], bytes]
"""A large one is made when it is sent."""


class Pool:
    """Asks one origin. Nothing is sent twice, no cookie is kept, no redirect followed."""

    def __init__(
        self,
        headers: Mapping[str, str],
        connect_s: float,
        *,
        is_direct: bool = False,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        """The headers go with each request; one that is direct goes through no proxy."""
        self._headers = headers
        self._connect_s = connect_s
        self._is_direct = is_direct
        self._way: tuple[Origin, Proxy | None] | None = None
        self._heads: dict[tuple[object, ...], bytes] = {}
        self._idle: list[Http1Connection] = []
        self.connections: set[Http1Connection] = set()
        self.places = Slots(max_connections)
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def ask(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        content: Body | None = None,
        *,
        is_apart: bool = False,
    ) -> Http1Response:
        """Send a request, on a new connection if need be; raises Trouble.

        It waits while there are too many, as long as its caller does. A request apart neither waits
        nor makes others wait: a stream that stays open, or a message that others depend on.
        """
        head = self._head(method, url, headers)
        if not is_apart:
            await self.places.place()
        try:
            if self._is_closed:
                raise InvalidRequest(_CLOSED)
            connection = self._rested() or await self._new()
        except BaseException:
            if not is_apart:
                self.places.leave()
            raise
        if not is_apart:
            connection.give_back = self.places.leave
            if not connection.is_open:
                connection.leave()
        return connection.ask(*_request(head, content))

    def begin(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        content: Body | None,
        ready: Callable[[Http1Response], None],
    ) -> Http1Response | None:
        """Send a request if there is a connection for it; else None. Raises Unfit."""
        head = self._head(method, url, headers)
        places = self.places
        connection = self._rested() if places.inside < places.most else None
        if connection is None:
            return None
        places.inside += 1
        connection.give_back = places.leave
        return connection.ask(*_request(head, content), ready)

    async def close(self) -> None:
        """Close all connections; who waits for an answer is told."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for connection in tuple(self.connections):
            connection.abort()
        self._idle.clear()
        await asyncio.sleep(0)  # sockets are closed a moment later

    async def _new(self) -> Http1Connection:
        assert self._way is not None
        origin, proxy = self._way
        connection = await dial(origin, proxy, self._make, self._connect_s)
        if self._is_closed:
            connection.abort()
            raise InvalidRequest(_CLOSED)
        if connection.is_open:
            self.connections.add(connection)
        return connection

    def _make(self) -> Http1Connection:
        return Http1Connection(self._rests, self._gone)

    def _rested(self) -> Http1Connection | None:
        """A connection that is open and has not been idle for long, the latest first."""
        if not self._idle:
            return None
        now = asyncio.get_running_loop().time()
        while self._idle:
            connection = self._idle.pop()
            if _is_fresh(connection, now) and connection.is_alive():
                return connection
            connection.abort()
        return None

    def _rests(self, connection: Http1Connection) -> None:
        if self._is_closed:
            connection.abort()
            return
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._idle.append(connection)
        connection.leave()
        if self._timer is None:
            self._timer = loop.call_later(LOOK_S, self._look)

    def _gone(self, connection: Http1Connection) -> None:
        self.connections.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        connection.leave()

    def _look(self) -> None:
        """Close what nobody needed for a while: the longest idle are first."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        surplus = len(self._idle) - MAX_IDLE
        for place, connection in enumerate(tuple(self._idle)):
            if place < surplus or not _is_fresh(connection, now):
                connection.abort()
                self._idle.remove(connection)
        self._timer = loop.call_later(LOOK_S, self._look) if self._idle else None

    def _head(self, method: str, url: str, headers: Mapping[str, str]) -> bytes:
        """All that the same requests begin with."""
        key = (method, url, *headers.items())
        head = self._heads.get(key)
        if head is None:
            head = self._new_head(method, url, headers)
            if len(self._heads) >= _MAX_HEADS:
                self._heads.clear()
            self._heads[key] = head
        return head

    def _new_head(self, method: str, url: str, headers: Mapping[str, str]) -> bytes:
        target = parse(url)
        if self._way is None:
            proxy = None if self._is_direct else proxy_for(target.origin)
            self._way = target.origin, proxy
        origin, proxy = self._way
        if target.origin != origin:
            raise InvalidRequest("its URL leads elsewhere")
        by_name = {"host": ("host", origin.shown)}
        for name, value in (*_DEFAULTS.items(), *self._headers.items(), *headers.items()):
            by_name[name.lower()] = name, value
        if target.login:
            by_name["authorization"] = "authorization", target.login
        path = target.path
        if proxy is not None and origin.scheme == "http":
            path = f"http://{origin.shown}{path}"
            if proxy.login:
                by_name["proxy-authorization"] = "proxy-authorization", proxy.login
        for name, value in by_name.values():
            if why := unfit_header(name, value):
                raise InvalidRequest(why)
        lines = (f"{name}: {value}\r\n" for name, value in by_name.values())
        return f"{method} {path} HTTP/1.1\r\n{''.join(lines)}".encode()


def _is_fresh(connection: Http1Connection, now: float) -> bool:
    return now - connection.idle_since < min(IDLE_S, connection.rest_s)


def _request(head: bytes, content: Body | None) -> tuple[bytes, bytes]:
    if content is None:
        return head + b"\r\n", b""
    body = content() if callable(content) else content
    return b"%bcontent-length: %d\r\n\r\n" % (head, len(body)), body
