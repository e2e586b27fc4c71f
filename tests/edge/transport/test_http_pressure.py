"""Many clients that send or read slowly, or not at all, do not block the others."""

import asyncio
import contextlib
import json
import resource
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from portico import Server
from portico.edge.transport.http_limits import HttpLimits
from tests.support.backoff import until
from tests.support.clock import Clock
from tests.support.messages import modern
from tests.support.running import HttpServer
from tests.support.stage import staged
from tests.support.web import (
    HEADERS,
    WAIT_S,
    Site,
    mirrored,
    modern_call,
    post_bytes,
    serving,
    soon,
    tool_call,
)

LIST = modern("tools/list")
LARGE = 400_000
MB = 1024 * 1024


def head(length: int) -> bytes:
    """Return the headers of a request with a body of this length."""
    data = post_bytes(LIST, mirrored(LIST))
    headers = data[: data.index(b"\r\n\r\n") + 4]
    return headers.replace(
        b"content-length: %d" % len(json.dumps(LIST)), b"content-length: %d" % length
    )


@contextlib.asynccontextmanager
async def staller(site: Site, size: int) -> AsyncIterator[asyncio.StreamReader]:
    """Send this much of a body, and then nothing."""
    reader, writer = await site.connect()
    writer.write(head(LARGE) + b" " * size)
    await writer.drain()
    try:
        yield reader
    finally:
        writer.close()


async def held(site: Site, least: int) -> None:
    """Wait until bodies take this much memory."""
    await until(lambda: site.app.bodies.used >= least)


def large(size: int = LARGE) -> bytes:
    return json.dumps({**LIST, "pad": "x" * size}).encode()


async def test_slow_senders_are_dropped_first_and_the_next_body_has_their_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("portico.core.http1.memory_budget.GRACE_S", 0)
    async with staged(HttpLimits(bodies_bytes=MB)) as (_, site):
        async with contextlib.AsyncExitStack() as stack:
            slow = []
            for _ in range(3):
                slow.append(await stack.enter_async_context(staller(site, 300_000)))
                await held(site, len(slow) * 300_000)
            served = await site.post(large(), mirrored(LIST))
            dropped = await asyncio.wait_for(slow[0].read(), WAIT_S)
            small = await site.modern(LIST)
            held_back = site.app.bodies.used
        assert held_back == 600_000

    assert served.status_code == small.status_code == 200
    assert dropped.startswith(b"HTTP/1.1 408")
    assert b"connection: close" in dropped


async def test_where_nobody_is_slow_a_large_body_is_told_to_come_back_and_a_small_one_served() -> (
    None
):
    async with (
        staged(HttpLimits(bodies_bytes=MB, body_s=WAIT_S)) as (_, site),
        contextlib.AsyncExitStack() as stack,
    ):
        for count in range(1, 4):
            await stack.enter_async_context(staller(site, 300_000))
            await held(site, count * 300_000)
        refused = await site.post(large(), mirrored(LIST))
        small = await site.modern(LIST)

    # On a slow machine, they may count as slow by now.
    assert refused.status_code in (200, 503)
    assert refused.status_code == 200 or refused.headers["retry-after"] == "1"
    assert small.status_code == 200


async def test_the_body_of_a_call_counts_until_it_is_answered() -> None:
    async with staged(HttpLimits(bodies_bytes=MB)) as (stage, site):
        call = modern_call("wait")
        body = json.dumps({**call, "pad": "x" * 900_000}).encode()
        waiting = asyncio.create_task(site.post(body, mirrored(call)))
        await soon(stage.entered)
        refused = await site.post(large(), mirrored(LIST))
        stage.go_on.set()
        answered = await waiting
        after = await site.post(large(), mirrored(LIST))
        left = site.app.bodies.used

    assert [one.status_code for one in (refused, answered, after)] == [503, 200, 200]
    assert left == 0


async def test_the_body_of_a_call_counts_also_after_its_client_has_left() -> None:
    async with staged(HttpLimits(bodies_bytes=MB, quiet_s=10 * WAIT_S)) as (stage, site):
        session = await site.session()
        _, writer = await site.connect()
        writer.write(post_bytes({**tool_call("wait"), "pad": "x" * 900_000}, session))
        await soon(stage.entered)
        connections = len(site.app.cap)
        writer.close()
        await until(lambda: len(site.app.cap) < connections)
        refused = await site.post(large(), mirrored(LIST))
        stage.go_on.set()
        await until(lambda: not site.app.bodies.used)

    assert refused.status_code == 503


async def test_to_leave_cancels_a_call_with_a_large_body_too() -> None:
    async with staged(HttpLimits(quiet_s=10 * WAIT_S)) as (stage, site):
        call = modern_call("wait")
        _, writer = await site.connect()
        writer.write(post_bytes({**call, "pad": "x" * 900_000}, mirrored(call)))
        await soon(stage.entered)
        writer.close()
        await soon(stage.cancelled)


async def test_all_doors_share_the_memory_for_bodies() -> None:
    from portico.edge.transport.routes import Routes

    endpoint = Server("x").endpoint(())
    app = Routes(endpoint, lambda path: endpoint if path == "/other" else None)
    other = app.app_at("/other")

    assert other is not None
    assert other.bodies is app.bodies


@pytest.mark.parametrize("pieces", [2, 3, 50])
async def test_a_small_body_in_pieces_is_put_together(pieces: int) -> None:
    data = post_bytes(LIST, mirrored(LIST))
    start = data.index(b"\r\n\r\n") + 4
    size = -(-(len(data) - start) // pieces)
    async with staged() as (_, site):
        reader, writer = await site.connect()
        writer.write(data)
        await asyncio.wait_for(reader.readuntil(b'"wait"'), WAIT_S)  # now its headers are known
        writer.write(data[:start])
        for at in range(start, len(data), size):
            await writer.drain()
            await asyncio.sleep(0)
            writer.write(data[at : at + size])
        answer = await asyncio.wait_for(reader.readuntil(b'"wait"'), WAIT_S)
        writer.close()

    assert b"HTTP/1.1 200" in answer


BIG = Server("big")


@BIG.tool
def big(size: int) -> str:
    """Return a large result."""
    return "x" * size


async def test_readers_that_take_nothing_are_cut_off_when_others_need_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("portico.core.http1.memory_budget.GRACE_S", 0)
    monkeypatch.setattr("portico.core.http1.timed_connection.GRACE_S", 0)
    size = 12 * MB  # more than the kernel takes
    call = modern_call("big", size=size)
    async with (
        serving(BIG.asgi(limits=HttpLimits(unread_bytes=24 * MB))) as site,
        contextlib.AsyncExitStack() as stack,
    ):
        for _ in range(4):
            _, writer = await site.connect()
            stack.callback(writer.close)
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(post_bytes(call, mirrored(call)))
        async with asyncio.timeout(WAIT_S):
            while len(site.app.cap) > 3:  # noqa: ASYNC110  (it has no event of its own)
                await asyncio.sleep(0)
        read = await site.modern(call)
        assert site.app.unread.used <= 24 * MB

    assert len(read.json()["result"]["content"][0]["text"]) == size


async def test_a_slow_reader_has_its_time_as_long_as_it_reads(clock: Clock) -> None:
    size = 16 * MB
    call = modern_call("big", size=size)
    async with serving(BIG.asgi(limits=HttpLimits(stall_s=60))) as site:
        narrow = socket.socket()
        narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        narrow.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(narrow, ("127.0.0.1", site.port))
        await loop.sock_sendall(narrow, post_bytes(call, mirrored(call)))
        got = 0
        while got < size:  # which takes longer than the stall timeout
            data = await asyncio.wait_for(loop.sock_recv(narrow, 64 * 1024), WAIT_S)
            assert data, f"cut off after {got} bytes"
            got += len(data)
            await clock.advance(0.8)
        narrow.close()


async def test_silent_connections_make_room_for_those_that_speak(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("portico.core.http1.connection_cap.GRACE_S", 0)
    async with staged(HttpLimits(half_open=5, header_s=WAIT_S)) as (_, site):
        established = await site.modern(LIST)
        silent = [await site.connect() for _ in range(20)]
        for _, writer in silent[10:]:
            writer.write(b"POST /mcp HTTP/1.1\r\nx: ")
        after = await site.modern(LIST)
        async with httpx2.AsyncClient() as another:
            new = await another.post(site.url + "/mcp", json=LIST, headers=HEADERS | mirrored(LIST))
        assert await asyncio.wait_for(silent[0][0].read(), WAIT_S) == b""
        connections = len(site.app.cap)
        for _, writer in silent:
            writer.close()

    assert established.status_code == after.status_code == new.status_code == 200
    assert connections < 10


COMPONENT = """
from portico import Server

server = Server("x")


@server.tool
def nothing() -> None:
    ...
"""


def rss_mb(pid: int, field: str = "VmHWM") -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) // 1024
    raise AssertionError(field)


@pytest.mark.slow
async def test_200_half_sent_bodies_hold_little_memory_and_hold_up_nobody(tmp_path: Path) -> None:
    component = tmp_path / "server.py"
    component.write_text(COMPONENT)
    server = await asyncio.to_thread(HttpServer, component)
    before = rss_mb(server.process.pid, "VmRSS")
    sent = 3 * MB

    async def stall() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        try:
            writer.write(head(4 * MB))
            for _ in range(0, sent, 64 * 1024):
                writer.write(b" " * 64 * 1024)
                await writer.drain()
            await reader.read()  # refused, dropped or still open
        except ConnectionError:
            pass
        finally:
            writer.close()

    try:
        stallers = [asyncio.create_task(stall()) for _ in range(200)]
        async with httpx2.AsyncClient(timeout=WAIT_S) as client:
            statuses = []
            # Until most have been refused or dropped, which frees their memory.
            while sum(task.done() for task in stallers) < 140:
                response = await client.post(
                    server.url, json=LIST, headers=HEADERS | mirrored(LIST)
                )
                statuses.append(response.status_code)
        peak = rss_mb(server.process.pid)
        for task in stallers:
            task.cancel()
        await asyncio.gather(*stallers, return_exceptions=True)
    finally:
        await asyncio.to_thread(server.stop)

    assert set(statuses) == {200}
    assert peak - before < 300  # 640 without a limit


@pytest.mark.slow
async def test_silent_connections_do_not_use_up_the_descriptors(tmp_path: Path) -> None:
    component = tmp_path / "server.py"
    component.write_text(COMPONENT)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))
    try:
        server = await asyncio.to_thread(HttpServer, component)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    silent = []
    try:
        async with httpx2.AsyncClient(timeout=WAIT_S) as client:
            silent += [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(400)]
            response = await client.post(server.url, json=LIST, headers=HEADERS | mirrored(LIST))
    finally:
        for _, writer in silent:
            writer.close()
        await asyncio.to_thread(server.stop)

    assert response.status_code == 200
