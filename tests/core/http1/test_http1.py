"""Answers over HTTP/1.1, byte by byte: whole ones are told from those that are cut."""

import asyncio
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.core.http1.connection import MAX_HEAD, MAX_HEADERS, Http1Connection
from portico.core.http1.errors import ConnectionLost
from portico.core.http1.response import Http1Response
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

BODY = b'{"jsonrpc":"2.0","id":1}'
SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: 24\r\nX-A: 1\r\n\r\n" + BODY
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"a;odd=yes\r\n" + BODY[:10] + b"\r\n00E\r\n" + BODY[10:] + b"\r\n0\r\nX-Last: 1\r\n\r\n"
)
INFORMED = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + SIZED
CLOSED = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + BODY
OLD = b"HTTP/1.0 200 OK\r\nServer: old\r\n\r\n" + BODY
EMPTY = b"HTTP/1.1 204 No Content\r\n\r\n"
LARGE = b"HTTP/1.1 200 OK\r\nContent-Length: 70000\r\n\r\n" + BODY + b"x" * (70_000 - len(BODY))
FRAMED = {"sized": SIZED, "chunked": CHUNKED, "informed": INFORMED, "empty": EMPTY, "large": LARGE}
ENDED = {"closed": CLOSED, "old": OLD}


class Ways:
    """A transport that goes nowhere, for a connection that is told what to read."""

    def __init__(self) -> None:
        self.is_open = True
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return not self.is_open

    def abort(self) -> None:
        self.is_open = False

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


def asked(at_rest: list[Http1Connection]) -> tuple[Http1Connection, Http1Response]:
    """A connection on which something was asked."""
    connection = Http1Connection(at_rest.append, lambda _: None)
    ways: Any = Ways()
    connection.connection_made(ways)
    return connection, connection.send(b"GET / HTTP/1.1\r\n\r\n", b"")


def expected(answer: bytes) -> bytes:
    """The body of one of the answers above."""
    return answer[-70_000:] if answer is LARGE else b"" if answer is EMPTY else BODY


@given(
    st.sampled_from(sorted((FRAMED | ENDED).items())),
    st.lists(st.integers(0, len(INFORMED)) | st.integers(69_900, len(LARGE)), max_size=12),
)
def test_however_an_answer_is_chopped_it_is_the_same(
    named: tuple[str, bytes], at: list[int]
) -> None:
    name, answer = named
    at_rest: list[Http1Connection] = []
    connection, response = asked(at_rest)
    cuts = sorted({0, len(answer), *(cut for cut in at if cut < len(answer))})
    for start, end in itertools.pairwise(cuts):
        connection.data_received(answer[start:end])
    if name in ENDED:
        assert not response.is_whole
        connection.eof_received()
    assert response.is_whole
    assert response.body() == expected(answer)
    assert response.status == (204 if name == "empty" else 200)
    assert at_rest == ([] if name in ENDED else [connection])
    if name not in ENDED:  # and the next one has nothing of the last
        response = connection.send(b"GET / HTTP/1.1\r\n\r\n", b"")
        connection.data_received(SIZED)
        assert response.body() == BODY


@given(st.binary(max_size=200), st.sampled_from([b"", SIZED[:20], CHUNKED[:60], LARGE[:60]]))
def test_garbage_is_never_more_than_an_answer_or_trouble(garbage: bytes, before: bytes) -> None:
    connection, response = asked([])
    connection.data_received(before + garbage)
    connection.connection_lost(None)
    assert response.is_over()


def test_a_body_in_the_smallest_of_chunks_is_held_in_few_pieces() -> None:
    connection, response = asked([])
    connection.data_received(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(3):
        connection.data_received(b"1\r\nx\r\n" * 1000)
    assert list(response.chunks) == [b"x" * 1000] * 3


@pytest.mark.parametrize("answer", [*FRAMED.values(), *ENDED.values()], ids=[*FRAMED, *ENDED])
async def test_an_answer_may_come_byte_by_byte(answer: bytes) -> None:
    async def converse(server: RawServer, reader: Reader, writer: Writer) -> None:
        await server.request(reader)
        step = 1 + len(answer) // 500
        for at in range(0, len(answer), step):
            writer.write(answer[at : at + step])
            await writer.drain()
            await asyncio.sleep(0)

    async with raw_server(converse) as server, asking() as pool:
        status, body = await fetched(pool, server.url)
    assert (status, body) == (204 if answer is EMPTY else 200, expected(answer))


@pytest.mark.parametrize("name", ["sized", "chunked", "informed", "large"])
async def test_an_answer_that_is_cut_anywhere_is_never_taken_for_a_shorter_one(name: str) -> None:
    answer = FRAMED[name]
    step = 1 + len(answer) // 500
    cuts = iter(range(0, len(answer), step))

    async def converse(server: RawServer, reader: Reader, writer: Writer) -> None:
        await server.request(reader)
        writer.write(answer[: next(cuts)])

    async with raw_server(converse) as server, asking() as pool:
        asked = 0
        for _ in range(0, len(answer), step):
            asked += 1
            with pytest.raises(ConnectionLost):
                await fetched(pool, server.url)
        assert server.connections == asked  # and nothing was asked twice


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"<html>hello</html>",
        b"HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\nabcde",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nbad header\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x-a: b\r\n" * (MAX_HEADERS + 1) + b"\r\n",
        b"HTTP/1.1 200 OK\r\nx-a: " + b"b" * MAX_HEAD,
        b"HTTP/1.1 200 " + b"k" * (MAX_HEAD + 2),
        b"HTTP/1.1 100 Continue\r\n\r\n" * (MAX_HEAD // 20),
        CHUNKED[:-2] + b"x-a: " + b"b" * (8 * MAX_HEAD),
    ],
)
async def test_what_is_no_answer_is_told_and_not_taken(answer: bytes) -> None:
    async def converse(server: RawServer, reader: Reader, writer: Writer) -> None:
        await server.request(reader)
        writer.write(answer)
        await reader.read()  # until the other side hangs up

    async with raw_server(converse) as server, asking() as pool:
        with pytest.raises(ConnectionLost, match="sent an invalid HTTP response: "):
            await fetched(pool, server.url)
        await asyncio.wait_for(server.left.get(), WAIT_S)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200\r\nContent-Length:2\r\n\r\nok",
        b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n2  \r\nok\r\n0\r\n\r\n",
        b"\r\nHTTP/1.1 200 OK\r\nContent-Length: 0002\r\n\r\nok",
    ],
)
async def test_the_habits_of_old_servers_do_no_harm(answer: bytes) -> None:
    async with raw_server(saying(answer)) as server, asking() as pool:
        for _ in range(2):
            assert await fetched(pool, server.url) == (200, b"ok")
    assert server.connections == 1


async def test_headers_are_found_by_small_letters_and_joined() -> None:
    lines = (b"HTTP/1.1 200 ", b"X-A: 1", b"x-a: 2", b"X-B:\t\xc3\xa9 ", b"X-C: \xe9")
    answer = b"\r\n".join((*lines, b"Content-Length: 0", b"", b""))
    async with raw_server(saying(answer)) as server, asking() as pool:
        response = await pool.send("POST", server.url, {}, b"")
        await response.head()
    assert response.headers == {"x-a": "1, 2", "x-b": "é", "x-c": "é", "content-length": "0"}
    assert response.reason == ""


async def test_a_body_is_made_when_there_is_a_connection_for_it() -> None:
    made: list[bytes] = []

    def content() -> bytes:
        made.append(b"abc")
        return b"abc"

    async with raw_server(saying(SIZED)) as server, asking() as pool:
        assert pool.begin("POST", server.url, {}, content, lambda _: None) is None
        assert made == []
        await (await pool.send("POST", server.url, {}, content)).head()
        assert server.bodies == made == [b"abc"]


async def test_a_request_is_what_it_should_be_and_carries_no_cookie() -> None:
    answer = b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n"
    async with raw_server(saying(answer)) as server, asking() as pool:
        url = server.url.replace("127", "us%20er:p%40ss@127").replace("/mcp", "/a b/../ü%41%?q=1 2")
        for _ in range(2):
            response = await pool.send(
                "POST", url, {"X-Team": "red", "Accept": "text/html"}, b"abc"
            )
            await response.head()
        await (await pool.send("DELETE", url, {})).head()
    assert server.heads[0] == server.heads[1]
    assert server.heads[0].decode().split("\r\n") == [
        "POST /%C3%BC%41%25?q=1%202 HTTP/1.1",
        f"host: 127.0.0.1:{server.port}",
        "Accept: text/html",
        "accept-encoding: identity",
        "connection: keep-alive",
        "user-agent: portico",
        "X-Team: red",
        "authorization: Basic dXMgZXI6cEBzcw==",
        "content-length: 3",
        "",
        "",
    ]
    assert server.heads[2].startswith(b"DELETE /")
    assert b"content-length" not in server.heads[2]
    assert server.bodies == [b"abc", b"abc", b""]
