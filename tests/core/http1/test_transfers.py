"""Bodies from and to files, parts of files, and redirects to other origins."""

import asyncio
import hashlib
import io
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from portico.core.http1.body import FileBody
from portico.core.http1.cross_origin import MAX_REDIRECTS, CrossOriginClient
from portico.core.http1.dial import Permit, permit_all
from portico.core.http1.download import check_length, read_body, resumed_at, write_body
from portico.core.http1.errors import ConnectionLost, Http1Error, InvalidBody, InvalidRequest
from portico.core.http1.url import Origin
from tests.upstream.connections.fakes import WAIT_S
from tests.upstream.connections.raw_server import (
    RawServer,
    Reader,
    Writer,
    asking,
    raw_server,
    saying,
)

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
SECRET = {"authorization": "Basic c2VjcmV0"}


class AnyOrigin:
    """Permits every origin but those that a test refuses."""

    def __init__(self) -> None:
        self.refused: set[int] = set()

    def refusal(self, origin: Origin) -> str:
        return "this port is not for you" if origin.port in self.refused else ""

    def is_direct(self, origin: Origin) -> bool:
        return True

    def permit(self, origin: Origin) -> Permit:
        return permit_all


@asynccontextmanager
async def client(rule: AnyOrigin | None = None) -> AsyncGenerator[CrossOriginClient, None]:
    made = CrossOriginClient(rule or AnyOrigin(), WAIT_S)
    try:
        async with asyncio.timeout(WAIT_S):
            yield made
    finally:
        await made.close()


def body(data: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(data), data)


def redirect(url: str, status: int = 307) -> bytes:
    return f"HTTP/1.1 {status} Moved\r\nLocation: {url}\r\nContent-Length: 0\r\n\r\n".encode()


async def test_a_part_of_a_file_is_sent_without_being_in_memory(tmp_path: Path) -> None:
    data = bytes(range(256)) * 20_000
    path = tmp_path / "data"
    path.write_bytes(data)
    taken: list[int] = []
    async with raw_server(saying(OK)) as server, asking() as pool:
        with path.open("rb") as file:
            part = FileBody(file, 1000, len(data) - 2000, taken.append)
            response = await pool.send("PUT", server.url, {}, part)
            await response.head()
        assert server.bodies == [data[1000:-1000]]
    assert sum(taken) == len(data) - 2000
    assert max(taken) < 1024 * 1024


async def test_an_empty_part_is_sent() -> None:
    async with raw_server(saying(OK)) as server, asking() as pool:
        response = await pool.send("PUT", server.url, {}, FileBody(io.BytesIO(), 0, 0))
        await response.head()
        assert b"content-length: 0" in server.heads[0]


async def test_a_file_that_becomes_shorter_fails_its_request() -> None:
    async with raw_server(saying(OK)) as server, asking() as pool:
        response = await pool.send("PUT", server.url, {}, FileBody(io.BytesIO(b"ab"), 0, 3))
        with pytest.raises(InvalidRequest, match="became shorter"):
            await response.head()


async def test_a_connection_is_used_again_after_a_head_request() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n"
    async with raw_server(saying(head, OK)) as server, asking() as pool:
        response = await pool.send("HEAD", server.url, {})
        await response.head()
        assert response.headers["content-length"] == "9999999"
        assert await read_body(response, 0, WAIT_S) == b""
        after = await pool.send("GET", server.url, {})
        await after.head()
        assert await read_body(after, 2, WAIT_S) == b"ok"
        assert server.connections == 1


async def test_a_body_after_a_head_request_ends_the_connection() -> None:
    async with raw_server(saying(body(b"x" * 10))) as server, asking() as pool:
        for _ in range(2):
            response = await pool.send("HEAD", server.url, {})
            await response.head()
            assert await read_body(response, 0, WAIT_S) == b""
        assert server.connections == 2


async def test_a_body_is_written_as_it_arrives_and_hashed() -> None:
    data = b"component" * 100_000
    async with raw_server(saying(body(data))) as server, client() as asked:
        response = await asked.send("GET", server.url)
        check_length(response, len(data))
        into, digest = io.BytesIO(), hashlib.sha256()
        await write_body(response, into, len(data), WAIT_S, digest)
    assert into.getvalue() == data
    assert digest.digest() == hashlib.sha256(data).digest()


@pytest.mark.parametrize(
    "answer, why, kept",
    [
        (body(b"abcd"), "sent more than the 3 bytes", b""),
        (body(b"ab"), "sent 2 of 3 bytes", b"ab"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", "before the end", b"ab"),
        (b"HTTP/1.1 200 OK\r\n\r\nabcd", "sent more than the 3 bytes", b""),
    ],
)
async def test_a_body_of_another_size_is_refused(answer: bytes, why: str, kept: bytes) -> None:
    async with raw_server(saying(answer, closes=True)) as server, client() as asked:
        response = await asked.send("GET", server.url)
        into = io.BytesIO()
        with pytest.raises(Http1Error, match=why):
            await write_body(response, into, 3, WAIT_S)
        assert into.getvalue() in (kept, b"")


async def test_a_wrong_length_is_refused_before_the_body() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 900000000\r\n\r\n"
    async with raw_server(saying(head)) as server, client() as asked:
        response = await asked.send("GET", server.url)
        with pytest.raises(InvalidBody, match="announced 900,000,000 bytes instead of 3"):
            check_length(response, 3)
        response.close()


async def test_a_server_that_stalls_is_given_up() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nab"
    async with raw_server(saying(head)) as server, client() as asked:
        response = await asked.send("GET", server.url)
        with pytest.raises(ConnectionLost, match=re.escape("sent nothing for 0.01 s")):
            await write_body(response, io.BytesIO(), 10, 0.01)
        response.close()


async def test_a_part_says_where_it_begins() -> None:
    part = b"HTTP/1.1 206 Partial\r\nContent-Range: bytes 7-8/9\r\nContent-Length: 2\r\n\r\nab"
    vague = b"HTTP/1.1 206 Partial\r\nContent-Length: 2\r\n\r\nab"
    async with raw_server(saying(part, body(b"ab"), vague)) as server, client() as asked:
        response = await asked.send("GET", server.url, {"range": "bytes=7-"})
        assert resumed_at(response) == 7
        assert await read_body(response, 2, WAIT_S) == b"ab"
        assert b"range: bytes=7-" in server.heads[0]
        whole = await asked.send("GET", server.url)
        assert resumed_at(whole) == 0
        await read_body(whole, 2, WAIT_S)
        with pytest.raises(InvalidBody, match="without saying which"):
            resumed_at(await asked.send("GET", server.url))


async def test_no_request_after_a_redirect_has_credentials() -> None:
    async with raw_server(saying(OK)) as other, client() as asked:

        async def converse(server: RawServer, reader: Reader, writer: Writer) -> None:
            while True:
                head = await server.request(reader)
                away = head.startswith(b"GET /away")
                there = f"{server.url}/again" if b"/mcp/again" not in head else other.url
                writer.write(redirect(other.url if away else there))

        async with raw_server(converse) as server:
            for path in ("/away", "/here"):
                url = server.url.replace("/mcp", path)
                response = await asked.send("GET", url, {"accept": "a/b"}, credentials=SECRET)
                assert await read_body(response, 2, WAIT_S) == b"ok"
            first = [head for head in server.heads if b"/mcp/again" not in head]
            assert all(b"Basic c2VjcmV0" in head for head in first)
            again = [head for head in server.heads if b"/mcp/again" in head]
            assert again
            assert not any(b"authorization" in head.lower() for head in (*again, *other.heads))
            assert all(b"accept: a/b" in head for head in other.heads)


async def test_redirects_have_an_end_and_a_rule() -> None:
    rule = AnyOrigin()
    async with raw_server(saying(OK)) as other:
        rule.refused.add(other.port)
        async with raw_server(saying(redirect(other.url))) as server, client(rule) as asked:
            with pytest.raises(InvalidRequest, match="not for you"):
                await asked.send("GET", server.url)
        assert other.connections == 0
    async with raw_server(saying(redirect("/mcp"))) as server, client() as asked:
        with pytest.raises(Http1Error, match="redirected more than 5 times"):
            await asked.send("GET", server.url)
        assert len(server.heads) == MAX_REDIRECTS + 1


async def test_a_body_is_not_sent_along_a_redirect() -> None:
    async with raw_server(saying(redirect("/other"))) as server, client() as asked:
        response = await asked.send("PUT", server.url, content=b"data")
        assert response.status == 307
        assert len(server.heads) == 1
