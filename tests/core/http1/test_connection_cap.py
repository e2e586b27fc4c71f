"""The cap on connections evicts idle and half-open ones."""

import resource

import pytest

from portico.core.http1.connection_cap import ConnectionCap
from portico.edge.transport.http_limits import HttpLimits


class Fake:
    """A connection that does nothing."""

    def __init__(self, requests: int = 0, *, is_idle: bool = False) -> None:
        self.requests = requests
        self.is_idle = is_idle
        self.evicted = False

    def evict(self) -> None:
        self.evicted = True


def connect(cap: ConnectionCap, *connections: Fake) -> list[Fake]:
    for connection in connections:
        cap.add(connection)
    return list(connections)


def test_past_the_limit_the_oldest_that_owes_its_headers_goes() -> None:
    now = 0.0
    cap = ConnectionCap(HttpLimits(half_open=2), lambda: now)
    first, second = connect(cap, Fake(), Fake())
    now = 2.0
    (third,) = connect(cap, Fake())

    assert [connection.evicted for connection in (first, second, third)] == [True, False, False]


def test_a_burst_of_connections_is_no_attack_until_it_is_four_times_the_limit() -> None:
    cap = ConnectionCap(HttpLimits(half_open=2), lambda: 0.0)
    burst = connect(cap, *(Fake() for _ in range(8)))
    assert not any(connection.evicted for connection in burst)

    connect(cap, Fake())

    assert [connection.evicted for connection in burst] == [True] + [False] * 7


def test_those_whose_headers_have_come_do_not_count() -> None:
    now = 0.0
    cap = ConnectionCap(HttpLimits(half_open=1), lambda: now)
    connections = connect(cap, Fake())
    cap.end_head(connections[0])
    now = 2.0
    connections += connect(cap, Fake())
    cap.begin_head(connections[0])  # its next request arrives slowly
    now = 4.0
    connect(cap, Fake())

    assert [connection.evicted for connection in connections] == [False, True]


def test_past_the_limit_of_connections_the_one_at_rest_that_was_used_least_goes() -> None:
    cap = ConnectionCap(HttpLimits(connections=3))
    used, idle, busy = connect(cap, Fake(50, is_idle=True), Fake(1, is_idle=True), Fake(9))
    (new,) = connect(cap, Fake())

    evicted = [connection.evicted for connection in (used, idle, busy, new)]
    assert evicted == [False, True, False, False]


def test_where_all_are_busy_a_new_connection_is_closed() -> None:
    cap = ConnectionCap(HttpLimits(connections=1))
    (busy,) = connect(cap, Fake(1))
    cap.end_head(busy)
    (new,) = connect(cap, Fake())

    assert (busy.evicted, new.evicted) == (False, True)
    cap.remove(new)
    assert len(cap) == 1


def test_connections_leave_descriptors_for_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (8, 8))
    cap = ConnectionCap(HttpLimits())
    connections = connect(cap, *(Fake(1, is_idle=True) for _ in range(7)))

    assert sum(connection.evicted for connection in connections) == 1
