"""A transport of the user's own: run until it returns, stopped in order, cancelled if it hangs."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from portico import Connection, Endpoint, Server
from portico.edge.transport.custom_transport import CLOSE_S, serve_over
from tests.support.clock import Clock


class Recorded:
    """A transport that records what it is given, and waits as long as the test wants."""

    def __init__(self, *, returns: bool = True) -> None:
        self._returns = returns
        self.started, self.drained = asyncio.Event(), asyncio.Event()
        self.was_cancelled = False

    async def __call__(
        self, endpoint: Endpoint, address: str | None, stop: asyncio.Event, drain_s: float
    ) -> None:
        self.started.set()
        try:
            await stop.wait()
            self.drained.set()
            if not self._returns:
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise


def endpoint() -> Endpoint:
    return Server("t").endpoint()


async def test_a_transport_gets_the_endpoint_the_address_and_the_time_to_drain() -> None:
    sent: list[bytes] = []
    given: list[object] = []

    async def serve(
        endpoint: Endpoint, address: str | None, stop: asyncio.Event, drain_s: float
    ) -> None:
        given.extend((address, stop.is_set(), drain_s))
        connection = Connection(endpoint, sent.append)
        connection.receive(b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
        connection.disconnected()

    await serve_over(serve, endpoint(), "here", drain_s=7)
    assert given == ["here", False, 7]
    assert sent == [b'{"jsonrpc":"2.0","id":1,"result":{}}']


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_stops_it_and_only_the_first_one(number: signal.Signals) -> None:
    transport = Recorded()
    serving = asyncio.create_task(serve_over(transport, endpoint()))
    await transport.started.wait()
    os.kill(os.getpid(), number)
    await asyncio.wait_for(serving, 10)
    assert transport.drained.is_set()
    assert not transport.was_cancelled
    assert not asyncio.get_running_loop().remove_signal_handler(number)


async def test_the_callers_event_stops_it_too() -> None:
    transport, stop = Recorded(), asyncio.Event()
    serving = asyncio.create_task(serve_over(transport, endpoint(), stop=stop))
    await transport.started.wait()
    stop.set()
    await asyncio.wait_for(serving, 10)
    assert transport.drained.is_set()


async def test_one_that_does_not_return_is_cancelled_after_the_drain(
    clock: Clock, capfd: pytest.CaptureFixture[str]
) -> None:
    transport, stop = Recorded(returns=False), asyncio.Event()
    serving = asyncio.create_task(serve_over(transport, endpoint(), stop=stop, drain_s=5))
    stop.set()
    await transport.drained.wait()
    await clock.advance(0)  # the time begins now
    await clock.advance(5 + CLOSE_S - 1)
    assert not serving.done()
    await clock.advance(1)
    await asyncio.wait_for(serving, 10)
    await asyncio.sleep(0)
    assert transport.was_cancelled
    assert "the transport has not returned 15 s after the stop" in capfd.readouterr().err


async def test_a_lifespan_is_open_from_before_its_start_until_after_its_end() -> None:
    events: list[str] = []

    @asynccontextmanager
    async def lifespan() -> AsyncGenerator[None, None]:
        events.append("opened")
        try:
            yield
        finally:
            events.append("closed")

    async def serve(
        endpoint: Endpoint, address: str | None, stop: asyncio.Event, drain_s: float
    ) -> None:
        events.append("served")
        raise ValueError("at work")

    with pytest.raises(ValueError, match="at work"):
        await serve_over(serve, endpoint(), running=lifespan())
    assert events == ["opened", "served", "closed"]


async def test_a_lifespan_that_does_not_open_can_be_stopped() -> None:
    transport, stop, opening = Recorded(), asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def lifespan() -> AsyncGenerator[None, None]:
        opening.set()
        await asyncio.Event().wait()
        yield

    serving = asyncio.create_task(serve_over(transport, endpoint(), stop=stop, running=lifespan()))
    await opening.wait()
    stop.set()
    await asyncio.wait_for(serving, 10)
    assert not transport.started.is_set()


async def test_its_exception_is_raised_before_and_after_the_stop() -> None:
    stop = asyncio.Event()

    async def fail(
        endpoint: Endpoint, address: str | None, stop: asyncio.Event, drain_s: float
    ) -> None:
        if address == "late":
            await stop.wait()
        raise ValueError(address)

    with pytest.raises(ValueError, match="early"):
        await serve_over(fail, endpoint(), "early")
    stop.set()
    with pytest.raises(ValueError, match="late"):
        await serve_over(fail, endpoint(), "late", stop=stop)


async def test_it_ends_with_the_task_that_serves_over_it() -> None:
    transport = Recorded()
    serving = asyncio.create_task(serve_over(transport, endpoint()))
    await transport.started.wait()
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    await asyncio.sleep(0)
    assert transport.was_cancelled
