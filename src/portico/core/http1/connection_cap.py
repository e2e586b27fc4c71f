"""Limits the number of connections: idle ones make room for new ones."""

import contextlib
from collections.abc import Callable
from time import monotonic
from typing import Protocol

from portico.core.http1.server_limits import ServerLimits

GRACE_S = 1.0
"""A client that has just connected may already have sent a request that we have not read."""
_BURST = 4
"""A burst within that time may exceed the limit of half-open connections by this factor."""


class CappedConnection(Protocol):
    """A connection, as the cap sees it."""

    requests: int
    """The number of requests received."""

    @property
    def is_idle(self) -> bool:
        """True between requests."""

    def evict(self) -> None:
        """Close the connection."""


class ConnectionCap:
    """The connections of one server."""

    def __init__(self, limits: ServerLimits, clock: Callable[[], float] = monotonic) -> None:
        available = _max_descriptors() * 3 // 4  # the rest is for upstreams and files
        self._limit = min(limits.connections, available)
        self._half_open_limit = min(limits.half_open, max(1, self._limit // 2))
        self._now = clock
        self._connections: dict[CappedConnection, None] = {}  # the oldest first
        self._half_open: dict[CappedConnection, float] = {}

    def __len__(self) -> int:
        return len(self._connections)

    def add(self, connection: CappedConnection) -> None:
        """Count a new connection, and evict one if there are too many."""
        self._connections[connection] = None
        self.begin_head(connection)
        if len(self._connections) > self._limit:
            self._eviction_candidate(connection).evict()

    def begin_head(self, connection: CappedConnection) -> None:
        """Record that a connection has yet to send the rest of its headers."""
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
        """Record that all headers have arrived."""
        self._half_open.pop(connection, None)

    def remove(self, connection: CappedConnection) -> None:
        """Forget a connection that was closed."""
        self._half_open.pop(connection, None)
        self._connections.pop(connection, None)

    def _eviction_candidate(self, newest: CappedConnection) -> CappedConnection:
        """Return the idle connection with the fewest requests, else the oldest half-open one, else
        the newest."""
        idle = [connection for connection in self._connections if connection.is_idle]
        if idle:
            return min(idle, key=lambda connection: connection.requests)
        return next(iter(self._half_open), newest)


def _max_descriptors() -> int:
    """Return how many files and sockets this process may have open."""
    with contextlib.suppress(ImportError):  # Windows
        import resource

        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if soft != resource.RLIM_INFINITY:
            return soft
    return 1_000_000
