"""How many connections there may be."""

import resource

import pytest

from portico.transport.connection_cap import ConnectionCap
from portico.transport.http_limits import HttpLimits


class Guest:
    """A connection that does nothing."""

    def __init__(self, requests: int = 0, *, is_idle: bool = False) -> None:
        self.requests = requests
        self.is_idle = is_idle
        self.dismissed = False

    def evict(self) -> None:
        self.dismissed = True


def joined(crowd: ConnectionCap, *guests: Guest) -> list[Guest]:
    for guest in guests:
        crowd.add(guest)
    return list(guests)


def test_past_the_limit_the_oldest_that_owes_its_headers_goes() -> None:
    now = 0.0
    crowd = ConnectionCap(HttpLimits(half_open=2), lambda: now)
    first, second = joined(crowd, Guest(), Guest())
    now = 2.0
    (third,) = joined(crowd, Guest())

    assert [guest.dismissed for guest in (first, second, third)] == [True, False, False]


def test_a_burst_of_connections_is_no_attack_until_it_is_four_times_the_limit() -> None:
    crowd = ConnectionCap(HttpLimits(half_open=2), lambda: 0.0)
    burst = joined(crowd, *(Guest() for _ in range(8)))
    assert not any(guest.dismissed for guest in burst)

    joined(crowd, Guest())

    assert [guest.dismissed for guest in burst] == [True] + [False] * 7


def test_those_whose_headers_have_come_do_not_count() -> None:
    now = 0.0
    crowd = ConnectionCap(HttpLimits(half_open=1), lambda: now)
    guests = joined(crowd, Guest())
    crowd.end_head(guests[0])
    now = 2.0
    guests += joined(crowd, Guest())
    crowd.begin_head(guests[0])  # its next request comes slowly
    now = 4.0
    joined(crowd, Guest())

    assert [guest.dismissed for guest in guests] == [False, True]


def test_past_the_limit_of_connections_the_one_at_rest_that_was_used_least_goes() -> None:
    crowd = ConnectionCap(HttpLimits(connections=3))
    used, resting, busy = joined(crowd, Guest(50, is_idle=True), Guest(1, is_idle=True), Guest(9))
    (new,) = joined(crowd, Guest())

    dismissed = [guest.dismissed for guest in (used, resting, busy, new)]
    assert dismissed == [False, True, False, False]


def test_where_all_are_busy_a_new_connection_is_closed() -> None:
    crowd = ConnectionCap(HttpLimits(connections=1))
    (busy,) = joined(crowd, Guest(1))
    crowd.end_head(busy)
    (new,) = joined(crowd, Guest())

    assert (busy.dismissed, new.dismissed) == (False, True)
    crowd.remove(new)
    assert len(crowd) == 1


def test_connections_leave_descriptors_for_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (8, 8))
    crowd = ConnectionCap(HttpLimits())
    guests = joined(crowd, *(Guest(1, is_idle=True) for _ in range(7)))

    assert sum(guest.dismissed for guest in guests) == 1
