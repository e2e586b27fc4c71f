"""How many connections there may be: those that say nothing make room for those that do."""

import contextlib
from collections.abc import Callable
from time import monotonic
from typing import Protocol

from portico.transport.http_limits import HttpLimits

GRACE_S = 1.0
"""A client that has just connected may have sent its request already, unread by us."""
_BURST = 4
"""So many times the limit may connect within that time."""


class CappedConnection(Protocol):
    """A connection, as one of many."""

    requests: int
    """How many have come."""

    @property
    def is_idle(self) -> bool:
        """True between requests."""
        ...

    def evict(self) -> None:
        """Close it."""
        ...


class ConnectionCap:
    """The connections of one server."""

    def __init__(self, limits: HttpLimits, clock: Callable[[], float] = monotonic) -> None:
        available = _max_descriptors() * 3 // 4  # the rest is for servers behind, files and sockets
        self._limit = min(limits.connections, available)
        self._half_open_limit = min(limits.half_open, max(1, self._limit // 2))
        self._now = clock
        self._connections: dict[CappedConnection, None] = {}  # the oldest first
        self._half_open: dict[CappedConnection, float] = {}

    def __len__(self) -> int:
        return len(self._connections)

    def add(self, connection: CappedConnection) -> None:
        """A client has connected; if there are too many, another connection is closed."""
        self._connections[connection] = None
        self.begin_head(connection)
        if len(self._connections) > self._limit:
            self._eviction_candidate(connection).evict()

    def begin_head(self, connection: CappedConnection) -> None:
        """A client owes the rest of its headers."""
        if connection in self._half_open:
            return
        self._half_open[connection] = self._now()
        if len(self._half_open) > self._half_open_limit:
            oldest, since = next(iter(self._half_open.items()))
            is_old = self._now() - since > GRACE_S
            if is_old or len(self._half_open) > self._half_open_limit * _BURST:
                del self._half_open[oldest]
                oldest.evict()

    def end_head(self, connection: CappedConnection) -> None:
        """All headers have come."""
        self._half_open.pop(connection, None)

    def remove(self, connection: CappedConnection) -> None:
        """The connection is closed."""
        self._half_open.pop(connection, None)
        self._connections.pop(connection, None)

    def _eviction_candidate(self, newest: CappedConnection) -> CappedConnection:
        """The connection that nobody misses: at rest with the fewest requests, else one that owes
        its headers, else the newest."""
        idle = [connection for connection in self._connections if connection.is_idle]
        if idle:
            return min(idle, key=lambda connection: connection.requests)
        return next(iter(self._half_open), newest)


def _max_descriptors() -> int:
    """How many files and sockets this process may have open."""
    with contextlib.suppress(ImportError):  # Windows
        import resource

        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if soft != resource.RLIM_INFINITY:
            return soft
    return 1_000_000
