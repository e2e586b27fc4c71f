"""How many connections a pool has, who waits for one, and how long one may rest."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from portico.core.http1.errors import ConnectError, ConnectionLost, Http1Error, InvalidRequest
from portico.core.http1.pool import Pool
from portico.core.http1.response import Http1Response
from tests.support.backoff import until
from tests.upstream.connections.fakes import WAIT_S
from tests.upstream.connections.raw_server import (
    RawServer,
    Reader,
    Writer,
    asking,
    fetched,
    raw_server,
    saying,
)

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: open\n\n"
Converse = Callable[[RawServer, Reader, Writer], Awaitable[None]]


def holding(go: asyncio.Event, answer: bytes = OK) -> Converse:
    """Answers each request once it may."""

    async def converse(server: RawServer, reader: Reader, writer: Writer) -> None:
        while True:
            await server.request(reader)
            await go.wait()
            writer.write(answer)

    return converse


async def started(pool: Pool, url: str, *bodies: bytes) -> list["asyncio.Task[tuple[int, bytes]]"]:
    """Requests that are sent or wait for a connection, in this order."""
    tasks = [asyncio.create_task(fetched(pool, url, body)) for body in bodies]
    for _ in range(3):
        await asyncio.sleep(0)
    return tasks


def free(pool: Pool) -> int:
    return pool.slots.limit - pool.slots.used


async def test_requests_beyond_the_connections_wait_and_are_sent_in_order() -> None:
    go = asyncio.Event()
    bodies = [b"%d" % number for number in range(9)]
    async with raw_server(holding(go)) as server, asking(limit=2) as pool:
        tasks = await started(pool, server.url, *bodies)
        await until(lambda: len(server.bodies) == 2)
        assert len(pool.slots.waiting) == 7
        go.set()
        assert await asyncio.gather(*tasks) == [(200, b"ok")] * 9
        assert free(pool) == 2
    assert server.connections == 2
    assert set(server.bodies[:2]) == {b"0", b"1"}
    # Two connections answer side by side: neighbours may arrive in either order, others may not.
    assert all(abs(int(body) - place) < 2 for place, body in enumerate(server.bodies))


async def test_a_single_connection_serves_in_the_order_of_asking() -> None:
    go = asyncio.Event()
    bodies = [b"%d" % number for number in range(20)]
    async with raw_server(holding(go)) as server, asking(limit=1) as pool:
        tasks = await started(pool, server.url, *bodies)
        go.set()
        await asyncio.gather(*tasks)
    assert server.bodies == bodies
    assert server.connections == 1


async def test_a_caller_that_is_cancelled_gives_up_its_turn() -> None:
    go = asyncio.Event()
    async with raw_server(holding(go)) as server, asking(limit=1) as pool:
        first, second, third = await started(pool, server.url, b"1", b"2", b"3")
        await until(lambda: server.bodies == [b"1"])
        second.cancel()
        await asyncio.wait({second})
        assert len(pool.slots.waiting) == 1
        go.set()
        assert (await first, await third) == ((200, b"ok"), (200, b"ok"))
        assert free(pool) == 1
    assert server.bodies == [b"1", b"3"]


async def test_a_caller_waits_within_its_own_time_only() -> None:
    async with raw_server(holding(asyncio.Event())) as server, asking(limit=1) as pool:
        tasks = await started(pool, server.url, b"1")
        await until(lambda: server.bodies == [b"1"])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await pool.send("POST", server.url, {}, b"2")
        assert not pool.slots.waiting
        for task in tasks:
            task.cancel()
    assert server.bodies == [b"1"]


async def test_no_place_is_lost_whenever_its_caller_gives_up() -> None:
    async with raw_server(saying(OK)) as server, asking(limit=1) as pool:
        for turns in range(40):
            url = f"http://localhost:{server.port}/"
            tasks = [asyncio.create_task(fetched(pool, url)) for _ in range(3)]
            for _ in range(turns):
                await asyncio.sleep(0)
            for task in tasks[: turns % 3 + 1]:
                task.cancel()
            await asyncio.wait(tasks)
        assert await fetched(pool, f"http://localhost:{server.port}/") == (200, b"ok")
        await until(lambda: free(pool) == 1)


@pytest.mark.parametrize("answer", [b"", OK[:-1], b"?"])
async def test_a_connection_that_breaks_makes_room(answer: bytes) -> None:
    async with raw_server(saying(answer, closes=True)) as server, asking(limit=1) as pool:
        for task in await started(pool, server.url, b"1", b"2", b"3"):
            with pytest.raises(ConnectionLost):
                await task
        await until(lambda: free(pool) == 1)
    assert server.bodies == [b"1", b"2", b"3"]


async def test_a_server_that_cannot_be_reached_keeps_no_place() -> None:
    async with asking(limit=1) as pool:
        for task in await started(pool, "http://127.0.0.1:1/", b"1", b"2"):
            with pytest.raises(ConnectError):
                await task
        assert free(pool) == 1


async def test_a_server_that_hangs_up_on_a_new_connection_keeps_no_place() -> None:
    async def converse(server: RawServer, reader: Reader, writer: Writer) -> None:
        writer.transport.abort()

    async with raw_server(converse) as server, asking(limit=1) as pool:
        for _ in range(20):
            with pytest.raises(Http1Error):
                await fetched(pool, server.url)
        await until(lambda: free(pool) == 1)


async def test_a_request_without_a_task_does_not_overtake_those_that_wait() -> None:
    go = asyncio.Event()
    go.set()
    overtaking: asyncio.Future[Http1Response | None] = asyncio.get_running_loop().create_future()
    async with raw_server(holding(go)) as server, asking(limit=1) as pool:
        await fetched(pool, server.url, b"1")
        go.clear()

        def ready(_: Http1Response) -> None:
            overtaking.set_result(pool.begin("POST", server.url, {}, b"4", lambda _: None))

        assert pool.begin("POST", server.url, {}, b"2", ready) is not None
        (waiting,) = await started(pool, server.url, b"3")
        go.set()
        assert await asyncio.wait_for(overtaking, WAIT_S) is None
        assert await waiting == (200, b"ok")
        assert free(pool) == 1
    assert server.bodies == [b"1", b"2", b"3"]


async def test_a_stream_apart_stays_open_and_keeps_nobody_waiting() -> None:
    async def converse(server: RawServer, reader: Reader, writer: Writer) -> None:
        head = await server.request(reader)
        writer.write(EVENTS if head.startswith(b"GET") else OK)
        await reader.read()

    async with raw_server(converse) as server, asking(limit=1) as pool:
        streams = [await pool.send("GET", server.url, {}, is_exempt=True) for _ in range(3)]
        for stream in streams:
            await stream.head()
        assert await fetched(pool, server.url) == (200, b"ok")
        for stream in streams:
            stream.close()
        await until(lambda: free(pool) == 1)
    assert server.connections == 4


async def test_closing_tells_those_who_wait_for_a_connection() -> None:
    async with raw_server(holding(asyncio.Event())) as server, asking(limit=1) as pool:
        first, *others = await started(pool, server.url, b"1", b"2", b"3")
        await until(lambda: server.bodies == [b"1"])
        await pool.close()
        with pytest.raises(ConnectionLost):
            await first
        for task in others:
            with pytest.raises(InvalidRequest, match="the connection pool is closed"):
                await task
    assert server.connections == 1


@pytest.mark.parametrize(
    ("says", "idle_s", "is_reused"),
    [
        ("timeout=5", 1.5, True),
        ("timeout=5", 4.5, False),
        ("timeout=60, max=100", 3.5, True),
        ("timeout=60", 4.5, False),  # not longer than without it
        ("timeout=3", 1.5, True),
        ("timeout=3", 2.5, False),
        ("max=100, Timeout=2", 1.5, False),
        ('timeout="2"', 1.5, False),
        ("timeout=1", 0.25, True),
        ("timeout=1", 0.75, False),
        ("timeout=0", 0.0, False),
        ("timeout=soon", 1.5, True),
        ("notimeout=1", 1.5, True),
        ("max=1", 1.5, True),
        ("timeout=" + "9" * 5000, 1.5, True),
        ("", 1.5, True),
    ],
)
async def test_a_connection_rests_no_longer_than_its_server_keeps_it(
    says: str, idle_s: float, is_reused: bool
) -> None:
    answer = OK.replace(b"Content", b"Keep-Alive: %b\r\nContent" % says.encode())
    async with raw_server(saying(answer)) as server, asking() as pool:
        await fetched(pool, server.url)
        (connection,) = pool.connections
        connection.idle_since -= idle_s
        await fetched(pool, server.url)
    assert server.connections == (1 if is_reused else 2)


async def test_a_connection_that_its_server_will_not_keep_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("portico.core.http1.pool.SWEEP_S", 0.01)
    answer = OK.replace(b"Content", b"Keep-Alive: timeout=0\r\nContent")
    async with raw_server(saying(answer)) as server, asking() as pool:
        await fetched(pool, server.url)
        await asyncio.wait_for(server.left.get(), WAIT_S)
