"""A blocked loop: the report names the cause."""

import asyncio
import os
import threading
import time

import pytest

from portico.core.model.errors import McpError
from portico.core.model.message import Request
from portico.core.model.version import LATEST_LEGACY
from portico.core.state import watchdog
from portico.core.state.watchdog import ACTIVITY, Watchdog
from portico.edge.transport.pipes import PipeReader
from portico.upstream.rpc.exchange import Exchange
from tests.support.backoff import until
from tests.upstream.connections.fakes import FakeWire

THRESHOLD_S = 0.25
BUSY_S = 4 * THRESHOLD_S


async def no(method: str, params: bytes, about: bytes) -> bytes:
    raise McpError("no")


def block(*_: object) -> None:
    """Block the loop, as a slow message does."""
    time.sleep(BUSY_S)


async def test_the_server_whose_message_is_processed_is_named_with_method_and_size() -> None:
    lines: list[str] = []
    exchange = Exchange(FakeWire(lambda _: None), "files", no, block)
    await exchange.open()
    message = b'{"jsonrpc":"2.0","method":"notifications/x","params":{}}'
    with Watchdog(THRESHOLD_S, lines.append):
        exchange.received(message)
        await until(lambda: bool(lines))
    (line,) = lines
    assert line.startswith("all clients waited ")
    assert f"processing a message from files ({len(message)} bytes), in upstream/" in line


async def test_a_clients_request_is_named_by_its_method() -> None:
    lines: list[str] = []

    def serve(request: Request) -> None:
        Exchange.next_id(Slow())  # type: ignore[arg-type]

    with Watchdog(THRESHOLD_S, lines.append):
        serve(Request(method="tools/call", version=LATEST_LEGACY))
        await until(lambda: bool(lines))
    assert (
        "processing a message from a client (tools/call), in upstream/rpc/exchange.py" in lines[0]
    )


class Slow:
    """Takes long to count."""

    @property
    def _last_id(self) -> int:
        block()
        return 1

    @_last_id.setter
    def _last_id(self, number: int) -> None:
        pass


async def test_lines_are_told_on_the_loop_and_few_of_them() -> None:
    threads: list[int] = []
    with Watchdog(THRESHOLD_S, lambda _: threads.append(threading.get_ident())):
        for _ in range(3):
            block()
            await asyncio.sleep(THRESHOLD_S)
        await until(lambda: bool(threads))
    assert threads == [threading.get_ident()]


async def test_without_a_threshold_there_is_no_thread() -> None:
    before = threading.active_count()
    with Watchdog(0, lambda _: None):
        assert threading.active_count() == before


async def test_it_sleeps_while_nothing_is_received_and_sees_the_next_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watchdog, "AWAKE_S", 0)
    monkeypatch.setattr(watchdog, "SLEEP_S", 600)
    lines: list[str] = []
    reader, writer = os.pipe()
    pipe = PipeReader(reader, block, lambda: None)
    with Watchdog(THRESHOLD_S, lines.append):
        pipe.open()
        pings = count_pings()
        await until(lambda: ACTIVITY.is_quiet)
        await asyncio.to_thread(block)  # for several thresholds
        assert len(pings) <= 1, "it may have been about to ping"
        os.write(writer, b"x")
        await until(lambda: bool(lines))
        pipe.close()
    assert lines[0].startswith("all clients waited ")
    os.close(reader)
    os.close(writer)


def count_pings() -> list[object]:
    """Return the pings of the running loop from now on."""
    loop, pings = asyncio.get_running_loop(), []
    plain = loop.call_soon_threadsafe

    def counted(callback: object, *args: object, **more: object) -> object:
        if getattr(callback, "__qualname__", "") == "Event.set":
            pings.append(callback)
        return plain(callback, *args, **more)  # type: ignore[arg-type]

    loop.call_soon_threadsafe = counted  # type: ignore[assignment, method-assign]
    return pings
