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
    def rests(self) -> bool:
        """True between requests."""
        ...

    def dismiss(self) -> None:
        """Close it."""
        ...


class ConnectionCap:
    """The connections of one server."""

    def __init__(self, limits: HttpLimits, clock: Callable[[], float] = monotonic) -> None:
        most = _descriptors() * 3 // 4  # the rest is for servers behind, files and sockets
        self._most = min(limits.connections, most)
        self._most_half_open = min(limits.half_open, max(1, self._most // 2))
        self._now = clock
        self._all: dict[CappedConnection, None] = {}  # the oldest first
        self._half_open: dict[CappedConnection, float] = {}

    def __len__(self) -> int:
        return len(self._all)

    def join(self, guest: CappedConnection) -> None:
        """A client has connected; if there are too many, another connection is closed."""
        self._all[guest] = None
        self.begin_head(guest)
        if len(self._all) > self._most:
            self._least_of(guest).dismiss()

    def begin_head(self, guest: CappedConnection) -> None:
        """A client owes the rest of its headers."""
        if guest in self._half_open:
            return
        self._half_open[guest] = self._now()
        if len(self._half_open) > self._most_half_open:
            oldest, since = next(iter(self._half_open.items()))
            is_old = self._now() - since > GRACE_S
            if is_old or len(self._half_open) > self._most_half_open * _BURST:
                del self._half_open[oldest]
                oldest.dismiss()

    def end_head(self, guest: CappedConnection) -> None:
        """All headers have come."""
        self._half_open.pop(guest, None)

    def leave(self, guest: CappedConnection) -> None:
        """The connection is closed."""
        self._half_open.pop(guest, None)
        self._all.pop(guest, None)

    def _least_of(self, newest: CappedConnection) -> CappedConnection:
        """The connection that nobody misses: at rest with the fewest requests, else one that owes
        its headers, else the newest."""
        resting = [guest for guest in self._all if guest.rests]
        if resting:
            return min(resting, key=lambda guest: guest.requests)
        return next(iter(self._half_open), newest)


def _descriptors() -> int:
    """How many files and sockets this process may have open."""
    with contextlib.suppress(ImportError):  # Windows
        import resource

        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if soft != resource.RLIM_INFINITY:
            return soft
    return 1_000_000
