"""Another protocol on the same core cancels and reports in its own way."""

import asyncio

import pytest

from portico.upstream.rpc.dialect import Dialect
from portico.upstream.rpc.exchange import Exchange
from tests.support.backoff import until
from tests.upstream.connections.fakes import WAIT_S, FakeWire

OTHER = Dialect(
    cancel_method="$/cancel_request",
    has_cancel_reason=False,
    cancelled_code=-32800,
    progress_method="",
    max_garbage_lines=3,
    max_incoming=1,
)


async def think(_: str, __: bytes, about: bytes) -> bytes:
    await asyncio.Event().wait()
    return b"{}"


async def opened(wire: FakeWire, received: list[str] | None = None) -> Exchange:
    notices = [] if received is None else received
    exchange = Exchange(wire, "fake", think, lambda method, *_: notices.append(method), OTHER)
    await exchange.open()
    return exchange


async def test_a_request_is_cancelled_by_the_method_of_the_dialect() -> None:
    wire = FakeWire(lambda _: None)
    exchange = await opened(wire)
    call = asyncio.create_task(exchange.request(b"1", "work", b"{}", timeout=WAIT_S))
    await wire.until("work")
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    cancelled = await wire.until("$/cancel_request")
    assert cancelled["params"] == {"requestId": 1}


async def test_a_request_that_is_taken_back_is_answered_once_with_the_code() -> None:
    wire = FakeWire(lambda _: None)
    await opened(wire)
    wire.deliver({"jsonrpc": "2.0", "id": "q", "method": "ask"})
    for _ in range(2):
        params = {"requestId": "q"}
        wire.deliver({"jsonrpc": "2.0", "method": "$/cancel_request", "params": params})
    answer = await wire.until("answer")
    assert answer["error"] == {"code": -32800, "message": "the request was cancelled"}
    assert len(wire.sent) == 1


async def test_the_methods_of_mcp_are_ordinary_notifications() -> None:
    received: list[str] = []
    wire = FakeWire(lambda _: None)
    await opened(wire, received)
    for method in ("notifications/cancelled", "notifications/progress"):
        wire.deliver({"jsonrpc": "2.0", "method": method, "params": {}})
    await until(lambda: len(received) == 2)
    assert received == ["notifications/cancelled", "notifications/progress"]


async def test_the_dialect_limits_garbage_and_open_requests() -> None:
    wire = FakeWire(lambda _: None)
    exchange = await opened(wire)
    for id in (1, 2):
        wire.deliver({"jsonrpc": "2.0", "id": id, "method": "ask"})
    await until(lambda: exchange.unmatched == 1)
    for _ in range(4):
        wire.deliver(b"npm warn")
    await until(exchange.is_over)
    assert exchange.failure is not None
    assert exchange.failure.why == "sent 4 lines in a row that are not messages"
