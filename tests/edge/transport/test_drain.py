"""A server drains before it stops."""

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from portico import Server
from portico.edge.transport.http_server import bind
from tests.support.messages import PREFIX, modern, request
from tests.support.stage import staged
from tests.support.web import (
    WAIT_S,
    listen,
    mirrored,
    modern_call,
    post_bytes,
    serving,
    soon,
    tool_call,
)

STREAM = {"accept": "text/event-stream"}
LIST = modern("tools/list")


async def test_while_draining_it_is_alive_but_not_ready_and_takes_no_new_work() -> None:
    async with staged() as (_, site):
        headers = await site.session()
        site.app.begin_drain()
        alive = await site.client.get(site.url + "/healthz")
        ready = await site.client.get(site.url + "/readyz")
        refused = [
            await site.modern(LIST),
            await site.modern(modern_call("echo", id=7, text="")),
            await site.post(request("tools/list"), headers),
            await site.post(request("initialize"), {}),
            await site.client.get(site.url + "/mcp", headers=headers | STREAM),
            await site.client.get(site.url + "/sse", headers=STREAM),
        ]

    assert (alive.status_code, ready.status_code) == (200, 503)
    assert [response.status_code for response in refused] == [503] * 6
    assert refused[1].json()["id"] == 7
    assert all(response.headers["connection"] == "close" for response in refused)


async def test_running_calls_of_all_kinds_finish_and_are_answered() -> None:
    async with staged() as (stage, site):
        headers = await site.session(capabilities={"elicitation": {}})
        modern_one = asyncio.create_task(site.modern(modern_call("wait")))
        await soon(stage.entered)
        stage.entered.clear()
        legacy_one = asyncio.create_task(site.post(tool_call("wait"), headers))
        await soon(stage.entered)
        async with site.streamed(tool_call("ask", id=2), headers) as asking:
            question = await asking.message()
            draining = asyncio.create_task(site.app.drain(WAIT_S))
            await soon(site.app.load.drain_began)
            # The answer to a running call's question is not new work.
            answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}}
            assert (await site.post(answer, headers)).status_code == 202
            answered = await asking.message()
        assert not draining.done()
        stage.go_on.set()
        answers = [(await modern_one).json(), (await legacy_one).json(), answered]
        await draining

    texts = [answer["result"]["content"][0]["text"] for answer in answers]
    assert texts == ["waited", "waited", "decline"]


async def test_open_ended_streams_end_properly() -> None:
    message = listen("sub", toolsListChanged=True)
    async with (
        staged() as (_, site),
        site.streamed(message, mirrored(message)) as listening,
        site.streamed(None, STREAM, "GET", "/sse") as old,
    ):
        headers = await site.session()
        async with site.streamed(None, headers | STREAM, "GET") as got:
            await listening.message()
            await old.event()
            await got.event()
            await site.app.drain(WAIT_S)
            last = await listening.message()
            rest = [*await listening.events(), *await old.events(), *await got.events()]

    assert last["result"]["resultType"] == "complete"
    assert last["result"]["_meta"][PREFIX + "subscriptionId"] == "sub"
    assert rest == []


async def test_calls_that_take_too_long_are_cancelled_and_their_askers_told() -> None:
    async with staged() as (stage, site):
        headers = await site.session()
        calls = []
        for call in (site.modern(modern_call("wait")), site.post(tool_call("wait"), headers)):
            stage.entered.clear()
            calls.append(asyncio.create_task(call))
            await soon(stage.entered)
        await site.app.drain(0.01)
        answers = [(await call).json() for call in calls]

    assert [answer["id"] for answer in answers] == [1, 1]
    assert all("shutting down" in answer["error"]["message"] for answer in answers)


async def test_a_handler_that_ignores_its_cancellation_holds_up_no_stop() -> None:
    server = Server("stubborn")
    entered, release, left = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @server.tool
    async def stay() -> str:
        entered.set()
        while not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()
        left.set()
        return ""

    async with serving(server.asgi(), drain_s=0.01) as site:
        headers = await site.session()
        modern_one = asyncio.create_task(site.modern(modern_call("stay")))
        await soon(entered)
        entered.clear()
        legacy_one = asyncio.create_task(site.post(tool_call("stay"), headers))
        await soon(entered)
    # The server has stopped, but the handlers have not.
    assert not left.is_set()
    release.set()
    await soon(left)
    await asyncio.gather(modern_one, legacy_one, return_exceptions=True)


def test_a_port_that_is_taken_is_an_error_before_anything_is_served() -> None:
    taken = bind("127.0.0.1", 0)
    port = taken[0].getsockname()[1]

    with pytest.raises(OSError, match="in use"):
        bind("127.0.0.1", port)

    taken[0].close()


def test_localhost_is_bound_on_one_port_in_every_family() -> None:
    sockets = bind("localhost", 0)

    assert len({bound.getsockname()[1] for bound in sockets}) == 1

    for bound in sockets:
        bound.close()


SERVER = """
import asyncio, sys
from portico import Context, Server
from portico.edge.transport.http_server import serve_http

server = Server("drained")

@server.tool
async def wait(seconds: float, *, context: Context) -> str:
    await context.progress(0)
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        print("cancelled", flush=True)
        raise
    return "finished"

def ready(port: int) -> None:
    print(port, flush=True)

drain_s, notice_s = map(float, sys.argv[1:])
asyncio.run(serve_http(server.asgi(), drain_s=drain_s, drain_notice_s=notice_s, ready=ready))
print("left", flush=True)
"""


@asynccontextmanager
async def process(
    tmp_path: Path, drain_s: float, notice_s: float = 0
) -> AsyncIterator[tuple[asyncio.subprocess.Process, int]]:
    """A server in its own process, and its port."""
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    child = await asyncio.create_subprocess_exec(
        sys.executable, script, str(drain_s), str(notice_s), stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    try:
        yield child, int(await asyncio.wait_for(child.stdout.readline(), WAIT_S))
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


@asynccontextmanager
async def connected(
    port: int,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()


@asynccontextmanager
async def begun(port: int, message: dict[str, Any]) -> AsyncIterator[asyncio.StreamReader]:
    """A call that has sent its first message."""
    async with connected(port) as (reader, writer):
        writer.write(post_bytes(message, mirrored(message)))
        await asyncio.wait_for(reader.readuntil(b"data: {"), WAIT_S)
        yield reader


LISTEN = listen("sub", toolsListChanged=True)
END = b"\r\n0\r\n\r\n"  # of a chunked response
READY = b"GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_lets_running_calls_finish_and_the_exit_is_clean(
    tmp_path: Path, number: signal.Signals
) -> None:
    async with (
        process(tmp_path, 30) as (child, port),
        begun(port, modern_call("wait", seconds=1.5)) as call,
        begun(port, LISTEN) as listening,
        connected(port) as (reader, writer),
    ):
        writer.write(READY)
        assert b"200" in await reader.readline()
        await reader.readuntil(b'"ready"}')
        child.send_signal(number)
        ended = await asyncio.wait_for(listening.readuntil(END), WAIT_S)
        # Connected clients still get responses, but no new work is accepted.
        writer.write(READY)
        assert b"503" in await reader.readline()
        await reader.readuntil(b'"draining"}')
        writer.write(post_bytes(LIST, mirrored(LIST)))
        assert b"503" in await reader.readline()
        with pytest.raises(ConnectionError):
            await asyncio.open_connection("127.0.0.1", port)
        answer = await asyncio.wait_for(call.read(), WAIT_S)
        code = await asyncio.wait_for(child.wait(), WAIT_S)
        assert child.stdout is not None
        output = await child.stdout.read()

    last = [line for line in ended.splitlines() if line.startswith(b"data: ")][-1]
    result = json.loads(last.removeprefix(b"data: "))
    # "The server SHOULD send the result" before it closes (2026-07-28, subscriptions).
    assert result["id"] == result["result"]["_meta"][PREFIX + "subscriptionId"] == "sub"
    assert b"finished" in answer
    assert (code, output) == (0, b"left\n")


async def test_calls_that_outlast_the_drain_are_cancelled_and_the_exit_is_clean(
    tmp_path: Path,
) -> None:
    async with (
        process(tmp_path, 0.2) as (child, port),
        begun(port, modern_call("wait", seconds=3600)) as call,
    ):
        child.send_signal(signal.SIGTERM)
        answer = await asyncio.wait_for(call.read(), WAIT_S)
        code = await asyncio.wait_for(child.wait(), WAIT_S)
        assert child.stdout is not None
        output = await child.stdout.read()

    assert b"shutting down" in answer
    assert (code, output) == (0, b"cancelled\nleft\n")


async def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    async with (
        process(tmp_path, 3600) as (child, port),
        begun(port, LISTEN) as listening,
        begun(port, modern_call("wait", seconds=3600)),
    ):
        child.send_signal(signal.SIGTERM)
        await asyncio.wait_for(listening.readuntil(END), WAIT_S)  # the drain has begun
        child.send_signal(signal.SIGTERM)
        code = await asyncio.wait_for(child.wait(), WAIT_S)

    assert code == -signal.SIGTERM


async def probe(port: int) -> bytes:
    """Return the status of `/readyz` for a load balancer that uses HTTP/1.0."""
    async with connected(port) as (reader, writer):
        writer.write(b"GET /readyz HTTP/1.0\r\n\r\n")
        return await asyncio.wait_for(reader.read(), WAIT_S)


async def leaving(port: int) -> None:
    """Wait until the server reports not ready."""
    async with asyncio.timeout(WAIT_S):
        while b" 503 " not in await probe(port):
            pass


async def answer(port: int, message: dict[str, Any]) -> bytes:
    """Return the whole response, which must close its connection."""
    async with connected(port) as (reader, writer):
        writer.write(post_bytes(message, mirrored(message)))
        return await asyncio.wait_for(reader.read(), WAIT_S)


async def test_where_somebody_probes_a_stop_is_announced_and_requests_are_served_meanwhile(
    tmp_path: Path,
) -> None:
    async with (
        process(tmp_path, 30, notice_s=3600) as (child, port),
        begun(port, LISTEN) as listening,
    ):
        assert b" 200 " in await probe(port)
        child.send_signal(signal.SIGTERM)
        await leaving(port)
        listed = await answer(port, LIST)
        called = await answer(port, modern_call("wait", seconds=0))
        child.send_signal(signal.SIGTERM)
        # Then it drains, and ends the streams that would never end.
        await asyncio.wait_for(listening.readuntil(END), WAIT_S)
        code = await asyncio.wait_for(child.wait(), WAIT_S)

    assert listed.startswith(b"HTTP/1.1 200")
    assert b'"wait"' in listed
    assert b"finished" in called
    # A pooled connection must not be closed under the next request.
    assert b"connection: close" in listed
    assert b"connection: close" in called
    assert code == 0


async def test_the_drain_begins_when_the_notice_is_over(tmp_path: Path) -> None:
    async with (
        process(tmp_path, 30, notice_s=0.2) as (child, port),
        begun(port, LISTEN) as listening,
    ):
        assert b" 200 " in await probe(port)
        child.send_signal(signal.SIGTERM)
        await asyncio.wait_for(listening.readuntil(END), WAIT_S)
        code = await asyncio.wait_for(child.wait(), WAIT_S)

    assert code == 0


@pytest.mark.parametrize("signals", [[signal.SIGINT], [signal.SIGTERM, signal.SIGTERM]])
async def test_an_interrupt_and_a_second_signal_begin_the_drain_at_once(
    tmp_path: Path, signals: list[signal.Signals]
) -> None:
    async with process(tmp_path, 30, notice_s=3600) as (child, port):
        async with begun(port, modern_call("wait", seconds=0.5)) as call:
            assert b" 200 " in await probe(port)
            for number in signals[:-1]:
                child.send_signal(number)
                await leaving(port)
            child.send_signal(signals[-1])
            finished = await asyncio.wait_for(call.read(), WAIT_S)
        code = await asyncio.wait_for(child.wait(), WAIT_S)

    assert b"finished" in finished
    assert code == 0


async def test_a_signal_during_the_drain_after_a_notice_ends_at_once(tmp_path: Path) -> None:
    async with (
        process(tmp_path, 3600, notice_s=3600) as (child, port),
        begun(port, LISTEN) as listening,
        begun(port, modern_call("wait", seconds=3600)),
    ):
        await probe(port)
        child.send_signal(signal.SIGTERM)
        await leaving(port)
        child.send_signal(signal.SIGTERM)
        await asyncio.wait_for(listening.readuntil(END), WAIT_S)  # the drain has begun
        child.send_signal(signal.SIGTERM)
        code = await asyncio.wait_for(child.wait(), WAIT_S)

    assert code == -signal.SIGTERM


async def test_where_nobody_probes_the_drain_begins_at_once(tmp_path: Path) -> None:
    async with process(tmp_path, 30, notice_s=3600) as (child, port):
        async with connected(port) as (reader, writer):
            writer.write(b"GET /healthz HTTP/1.0\r\n\r\n")
            assert b" 200 " in await reader.readline()
        child.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(child.wait(), WAIT_S) == 0


async def test_a_probe_counts_for_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("portico.edge.transport.http_app.monotonic", lambda: now)
    async with staged() as (_, site):
        before = site.app.is_probed
        await site.client.get(site.url + "/readyz")
        now += 59
        soon_after = site.app.is_probed
        now += 2
        later = site.app.is_probed

    assert (before, soon_after, later) == (False, True, False)


async def test_a_mounted_app_can_give_notice() -> None:
    async with staged() as (_, site):
        site.app.begin_notice()
        ready = await site.client.get(site.url + "/readyz")
        served = await site.modern(LIST)

    assert (ready.status_code, served.status_code) == (503, 200)
