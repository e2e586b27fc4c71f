"""Connections to one origin: used again, never when dead, bounded, and none left behind."""

import asyncio

import pytest

from portico.core.http1 import pool as pool_module
from portico.core.http1.errors import ConnectError, ConnectionLost, Http1Error, InvalidRequest
from portico.core.http1.pool import Pool
from portico.core.http1.response import HIGH_WATER, Http1Response
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
MB = 1024 * 1024


async def test_a_connection_is_asked_again() -> None:
    async with raw_server(saying(OK)) as server, asking() as pool:
        for _ in range(5):
            assert await fetched(pool, server.url) == (200, b"ok")
    assert server.connections == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        OK + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
        OK + b"more than it should be",
    ],
)
async def test_one_that_should_not_be_is_not_asked_again(answer: bytes) -> None:
    async with raw_server(saying(answer)) as server, asking() as pool:
        for _ in range(3):
            assert await fetched(pool, server.url) == (200, b"ok")
    assert server.connections == 3


async def test_what_comes_unasked_answers_nothing() -> None:
    said = asyncio.Event()

    async def converse(server: RawServer, reader: Reader, writer: Writer) -> None:
        await server.request(reader)
        writer.write(OK)
        await writer.drain()
        if server.connections == 1:
            await said.wait()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
            await reader.read()

    async with raw_server(converse) as server, asking() as pool:
        assert await fetched(pool, server.url) == (200, b"ok")
        said.set()
        await asyncio.wait_for(server.left.get(), WAIT_S)
        assert await fetched(pool, server.url) == (200, b"ok")
    assert server.connections == 2


async def test_one_that_the_server_has_just_closed_is_not_asked() -> None:
    async with raw_server(saying(OK, closes=True)) as server, asking() as pool:
        for _ in range(20):
            assert await fetched(pool, server.url) == (200, b"ok")
            await asyncio.wait_for(server.left.get(), WAIT_S)
    assert len(server.heads) == 20


async def test_a_request_that_meets_a_closing_connection_is_not_sent_twice() -> None:
    async def converse(server: RawServer, reader: Reader, writer: Writer) -> None:
        await server.request(reader)
        writer.write(OK)
        await server.request(reader)  # and hangs up

    async with raw_server(converse) as server, asking() as pool:
        assert await fetched(pool, server.url) == (200, b"ok")
        with pytest.raises(ConnectionLost, match="closed the connection without a response"):
            await fetched(pool, server.url)
    assert (server.connections, len(server.heads)) == (1, 2)


async def test_idle_connections_are_few_and_do_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "SWEEP_S", 0.01)
    monkeypatch.setattr(pool_module, "MAX_IDLE", 3)
    async with raw_server(saying(OK)) as server, asking() as pool:
        await asyncio.gather(*(fetched(pool, server.url) for _ in range(8)))
        for _ in range(5):
            await asyncio.wait_for(server.left.get(), WAIT_S)
        assert await fetched(pool, server.url) == (200, b"ok")
        assert server.connections == 8
        monkeypatch.setattr(pool_module, "IDLE_S", 0.0)
        for _ in range(3):
            await asyncio.wait_for(server.left.get(), WAIT_S)


async def test_an_answer_is_ready_without_a_task_on_a_connection_that_rests() -> None:
    ready: asyncio.Future[Http1Response] = asyncio.get_running_loop().create_future()
    async with raw_server(saying(OK)) as server, asking() as pool:
        assert pool.begin("POST", server.url, {}, b"", ready.set_result) is None
        await fetched(pool, server.url)
        begun = pool.begin("POST", server.url, {}, b"again", ready.set_result)
        assert await asyncio.wait_for(ready, WAIT_S) is begun
        assert begun is not None
        assert begun.body() == b"ok"
    assert (server.connections, server.bodies) == (1, [b"{}", b"again"])


async def test_a_large_answer_is_ready_with_its_head_and_read_to_its_end() -> None:
    ready: asyncio.Future[Http1Response] = asyncio.get_running_loop().create_future()
    large = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (3 * MB) + b"x" * (3 * MB)
    async with raw_server(saying(OK, large)) as server, asking() as pool:
        await fetched(pool, server.url)
        pool.begin("POST", server.url, {}, b"", ready.set_result)
        response = await asyncio.wait_for(ready, WAIT_S)
        assert response.status == 200
        assert sum([len(chunk) async for chunk in response]) == 3 * MB
        assert await fetched(pool, server.url, b"") == (200, b"x" * (3 * MB))
    assert server.connections == 1


async def test_a_server_has_to_wait_while_nobody_reads_its_answer() -> None:
    sent = 0
    stalled = asyncio.Event()

    async def converse(server: RawServer, reader: Reader, writer: Writer) -> None:
        nonlocal sent
        await server.request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while sent < 100 * MB:
            writer.write(b"x" * 65536)
            try:
                await asyncio.wait_for(writer.drain(), None if stalled.is_set() else 0.5)
            except TimeoutError:
                stalled.set()
                await writer.drain()
            sent += 65536

    async with raw_server(converse) as server, asking() as pool:
        response = await pool.send("POST", server.url, {}, b"")
        await response.head()
        await asyncio.wait_for(stalled.wait(), WAIT_S)
        assert response.buffered < 4 * HIGH_WATER
        async with asyncio.timeout(4 * WAIT_S):
            assert sum([len(chunk) async for chunk in response]) == 100 * MB


async def test_a_large_request_goes_out_as_fast_as_it_is_read() -> None:
    go = asyncio.Event()
    body = bytes(range(256)) * 4 * 5 * 1024  # 5 MB

    async def converse(server: RawServer, reader: Reader, writer: Writer) -> None:
        await go.wait()
        await server.request(reader)
        writer.write(OK)
        await server.request(reader)
        writer.write(OK)
        await reader.read()

    async with raw_server(converse) as server, asking() as pool:
        response = await pool.send("POST", server.url, {}, body)
        (connection,) = pool.connections
        assert connection.transport is not None
        assert connection.transport.get_write_buffer_size() < MB
        go.set()
        assert [chunk async for chunk in response] == [b"ok"]
        assert await fetched(pool, server.url, b"small") == (200, b"ok")
    assert server.bodies == [body, b"small"]
    assert server.connections == 1


async def test_an_answer_may_come_before_the_request_is_all_sent() -> None:
    async def converse(server: RawServer, reader: Reader, writer: Writer) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
        await writer.drain()
        if server.connections > 1:
            await reader.read()

    async with raw_server(converse) as server, asking() as pool:
        for _ in range(2):
            assert await fetched(pool, server.url, b"x" * (20 * MB)) == (413, b"no")
    assert server.connections == 2


async def test_an_answer_that_is_not_wanted_any_more_ends_its_connection() -> None:
    async def converse(server: RawServer, reader: Reader, writer: Writer) -> None:
        await server.request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        await reader.read()

    async with raw_server(converse) as server, asking() as pool:
        response = await pool.send("POST", server.url, {}, b"")
        await response.head()
        response.close()
        await asyncio.wait_for(server.left.get(), WAIT_S)
        assert not pool.connections


async def test_whoever_gives_up_at_any_moment_leaves_no_connection() -> None:
    async def converse(server: RawServer, reader: Reader, writer: Writer) -> None:
        await server.request(reader)
        for piece in (OK[:5], OK[5:30], OK[30:]):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        await reader.read()

    async with raw_server(converse) as server, asking() as pool:
        for turns in range(40):
            task = asyncio.create_task(fetched(pool, f"http://localhost:{server.port}/"))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait({task})
        await pool.close()
        async with asyncio.timeout(WAIT_S):
            for _ in range(server.connections):
                await server.left.get()
        assert not pool.connections


async def test_closing_tells_those_who_wait_and_lets_nobody_else_in() -> None:
    async def converse(server: RawServer, reader: Reader, writer: Writer) -> None:
        await server.request(reader)
        await reader.read()

    async with raw_server(converse) as server:
        pool = Pool({}, WAIT_S)
        waits = asyncio.create_task(fetched(pool, server.url))
        await asyncio.wait_for(server.asked.wait(), WAIT_S)
        await pool.close()
        with pytest.raises(ConnectionLost):
            await waits
        with pytest.raises(InvalidRequest):
            await fetched(pool, server.url)


async def test_a_server_that_accepts_and_says_nothing_is_waited_for_until_somebody_gives_up() -> (
    None
):
    async def converse(server: RawServer, reader: Reader, writer: Writer) -> None:
        await reader.read()

    async with raw_server(converse) as server, asking(0.05) as pool:
        task = asyncio.create_task(fetched(pool, server.url))
        done, _ = await asyncio.wait({task}, timeout=0.2)
        assert not done
        task.cancel()
        await asyncio.wait_for(server.left.get(), WAIT_S)


@pytest.mark.parametrize(
    ("url", "kind", "why"),
    [
        ("http://127.0.0.1:1/", ConnectError, "cannot be reached: Connect"),
        ("http://no-such-host.invalid/", ConnectError, "cannot be reached: "),
        (f"http://{'a' * 64}.example/", ConnectError, "cannot be reached: "),
        ("ftp://127.0.0.1/", InvalidRequest, "must begin with http:// or https://"),
        ("127.0.0.1:80/", InvalidRequest, "must begin with http:// or https://"),
    ],
)
async def test_nobody_there_is_told(url: str, kind: type[Http1Error], why: str) -> None:
    async with asking() as pool:
        with pytest.raises(kind, match=why):
            await fetched(pool, url)


@pytest.mark.parametrize("headers", [{"X-A": "1\r\nX-B: 2"}, {"X A": "1"}, {"Content-Length": "9"}])
async def test_no_header_brings_another_along(headers: dict[str, str]) -> None:
    async with raw_server(saying(OK)) as server, asking() as pool:
        with pytest.raises(InvalidRequest, match="cannot be contacted"):
            await pool.send("POST", server.url, headers, b"")
        assert server.connections == 0
