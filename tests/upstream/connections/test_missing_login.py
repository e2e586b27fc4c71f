"""An upstream that needs a login: it does not fail, so nothing pauses, and nothing retries."""

import asyncio
import time

import pytest

from portico.core.model.errors import TargetError
from portico.core.model.session import Session
from portico.upstream.connections.backoff import BackoffLimits, CircuitBreaker
from portico.upstream.connections.connection import UpstreamConnection
from portico.upstream.connections.policy import UpstreamPolicy
from portico.upstream.wires.wire import LOGIN, Failure
from tests.upstream.connections.fakes import FakeWire, Message, legacy, result
from tests.upstream.connections.test_connection_state import Nobody


def serve(message: Message) -> list[Message]:
    """A legacy server with subscriptions."""
    if message.get("method") == "resources/subscribe":
        return [result(message, {})]
    return legacy(message, resources={"subscribe": True})


class Guarded:
    """A server that lets clients in until its login has ended."""

    name = "guarded"

    def __init__(self) -> None:
        self.is_over = False
        self.opened: list[FakeWire] = []
        self.refused = 0

    def wire(self) -> FakeWire:
        if self.is_over:
            self.refused += 1
            raise TargetError("guarded requires a login", kind=LOGIN, server=self.name)
        wire = FakeWire(serve)
        self.opened.append(wire)
        return wire

    def older(self) -> None:
        return None


def connection_to(address: Guarded) -> tuple[UpstreamConnection, CircuitBreaker]:
    breaker = CircuitBreaker("guarded", BackoffLimits(), time.monotonic)
    made = UpstreamConnection(
        address, UpstreamPolicy(era="legacy"), breaker, Nobody(), Nobody(), view="legacy"
    )
    return made, breaker


async def test_a_missing_login_counts_neither_for_the_breaker_nor_for_the_backoff() -> None:
    address = Guarded()
    connection, breaker = connection_to(address)
    address.is_over = True
    for _ in range(10):
        with pytest.raises(TargetError, match="requires a login"):
            await connection.session()
    assert (breaker.failures, address.refused) == (0, 10)
    address.is_over = False
    await connection.session()
    await connection.close()


async def test_subscribers_of_a_server_that_needs_a_login_do_not_make_it_retry() -> None:
    address = Guarded()
    connection, _ = connection_to(address)
    session = await connection.session()
    await connection.subscribe("test://a", Session(lambda _: None))
    address.is_over = True
    receiver = address.opened[0].receiver
    assert receiver is not None
    receiver.lost(Failure(server="guarded", why="closed", kind="closed"))
    assert session.exchange.failure is not None
    while not address.refused:  # noqa: ASYNC110
        await asyncio.sleep(0)
    for _ in range(1000):
        await asyncio.sleep(0)
    assert address.refused == 1
    await connection.close()
