"""HTTP framing: trailers, hosts in the target, upgrades."""

import asyncio
import json
import re

import pytest

from portico import Server
from portico.edge.transport.http_limits import HttpLimits
from tests.support.messages import modern
from tests.support.web import WAIT_S, mirrored, post_bytes, serving

HELLO = modern("server/discover")
TOKEN = "a-token-of-many-letters"
ENOUGH = 20_000_000
"""More than all buffers in between can take."""


def chunked(target: str = "/mcp", host: str = "localhost", **headers: str) -> bytes:
    """Return a request in one chunk, up to where trailers may follow."""
    fields = {
        "host": host,
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "transfer-encoding": "chunked",
        **mirrored(HELLO),
        **headers,
    }
    lines = [f"POST {target} HTTP/1.1", *(f"{name}: {fields[name]}" for name in fields), "", ""]
    body = json.dumps(HELLO).encode()
    return "\r\n".join(lines).encode() + b"%x\r\n%b\r\n0\r\n" % (len(body), body)


CLOSE = {"connection": "close"}
AUTHORIZED = {"authorization": f"Bearer {TOKEN}"}


@pytest.mark.parametrize(
    ("headers", "trailer", "status"),
    [
        (AUTHORIZED, b"", b"200"),
        (AUTHORIZED, b"x-checksum: 1\r\n", b"200"),
        ({}, b"", b"401"),
        ({}, b"authorization: Bearer " + TOKEN.encode() + b"\r\n", b"401"),
        (AUTHORIZED, b"host: evil.test\r\nauthorization: Bearer other\r\n", b"200"),
    ],
)
async def test_trailers_are_no_headers(
    headers: dict[str, str], trailer: bytes, status: bytes
) -> None:
    async with serving(Server("x").asgi(token=TOKEN)) as site:
        answer = await site.raw(chunked(**headers, **CLOSE) + trailer + b"\r\n")

    assert answer.split(b" ", 2)[1] == status


@pytest.mark.parametrize("begin", [b"", b"x-one: "])
@pytest.mark.parametrize("is_answered", [True, False])
async def test_trailers_without_end_are_cut_off(begin: bytes, is_answered: bool) -> None:
    more = b"x" * 1000 if begin else b"x: y\r\n" * 200
    limits = HttpLimits(header_bytes=10_000)
    async with serving(Server("x").asgi(token=TOKEN, limits=limits)) as site:
        reader, writer = await site.connect()
        headers = (
            {} if is_answered else AUTHORIZED
        )  # without a token, the server does not wait for the body
        writer.write(chunked(**headers) + begin)
        await writer.drain()
        if is_answered:
            assert b"401" in await asyncio.wait_for(reader.readline(), WAIT_S)
        sent = 0
        try:
            while not reader.at_eof() and not writer.is_closing() and sent < ENOUGH:
                writer.write(more)
                sent += len(more)
                await asyncio.wait_for(writer.drain(), WAIT_S)
        except ConnectionError:
            pass  # disconnected while we were still writing
        writer.close()
        after = await site.client.get(site.url + "/healthz")

    assert sent < ENOUGH
    assert after.status_code == 200


async def flooded(begin: bytes, more: bytes, limits: HttpLimits) -> int:
    """Return how much a server reads of endless data; it must still serve others afterwards."""
    async with serving(Server("x").asgi(limits=limits)) as site:
        reader, writer = await site.connect()
        writer.write(begin)
        sent = 0
        try:
            while not reader.at_eof() and not writer.is_closing() and sent < ENOUGH:
                writer.write(more)
                sent += len(more)
                await asyncio.wait_for(writer.drain(), WAIT_S)
        except ConnectionError:
            pass  # disconnected while we were still writing
        writer.close()
        assert (await site.client.get(site.url + "/healthz")).status_code == 200
    return sent


async def test_an_extension_of_the_first_chunk_without_end_is_cut_off() -> None:
    head = chunked()[: chunked().index(b"\r\n\r\n") + 4]

    assert await flooded(head + b"5;", b"x" * 1000, HttpLimits(header_bytes=10_000)) < ENOUGH


@pytest.mark.parametrize(
    ("coding", "status"),
    [("chunked", b"200"), ("Chunked", b"200"), ("gzip, chunked", b"501"), ("x, chunked", b"501")],
)
async def test_only_chunks_are_understood(coding: str, status: bytes) -> None:
    data = chunked(**{"transfer-encoding": coding}, **CLOSE) + b"\r\n"
    async with serving(Server("x").asgi()) as site:
        answer = await site.raw(data)

    assert answer.split(b" ", 2)[1] == status


@pytest.mark.parametrize(
    ("target", "host", "status"),
    [
        ("http://localhost/mcp", "localhost", b"200"),
        ("http://localhost/mcp", "evil.test", b"200"),
        ("http://evil.test/mcp", "localhost", b"403"),
        ("http://localhost@evil.test/mcp", "localhost", b"403"),
        ("http://evil.test/healthz", "localhost", b"403"),
    ],
)
async def test_a_target_that_names_a_host_is_held_against_that_host(
    target: str, host: str, status: bytes
) -> None:
    async with serving(Server("x").asgi()) as site:
        answer = await site.raw(chunked(target, host, **CLOSE) + b"\r\n")

    assert answer.split(b" ", 2)[1] == status


@pytest.mark.parametrize("sort", ["h2c", "websocket"])
@pytest.mark.parametrize("pieces", [1, 3, 1000])
async def test_an_upgrade_with_a_body_is_ignored(sort: str, pieces: int) -> None:
    """Java's client requests h2c in the first request of each connection."""
    upgrade = {"connection": "Upgrade, HTTP2-Settings", "http2-settings": "AAEA", "upgrade": sort}
    requests = post_bytes(HELLO, mirrored(HELLO) | upgrade)
    requests += post_bytes(HELLO, mirrored(HELLO) | upgrade) + post_bytes(HELLO, mirrored(HELLO))
    size = -(-len(requests) // pieces)
    async with serving(Server("x").asgi()) as site:
        reader, writer = await site.connect()
        for at in range(0, len(requests), size):
            writer.write(requests[at : at + size])
            await asyncio.sleep(0)
        answers = b""
        async with asyncio.timeout(WAIT_S):
            while answers.count(b'"supportedVersions"') < 3 and (more := await reader.read(65536)):
                answers += more
        writer.close()

    assert answers.count(b"HTTP/1.1 200 OK") == 3


@pytest.mark.parametrize("sort", ["h2c", "websocket"])
async def test_the_body_of_an_upgrade_is_never_another_request(sort: str) -> None:
    another = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
    head = (
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\n"
        f"upgrade: {sort}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(another)}\r\n\r\n"
    )
    async with serving(Server("x").asgi()) as site:
        answers = await site.raw(
            head.encode() + another + post_bytes(HELLO, mirrored(HELLO), close=True)
        )

    assert re.findall(rb"HTTP/1.1 (\d+)", answers) == [b"400", b"200"]
    assert b'"code":-32700' in answers


async def test_an_upgrade_without_a_body_is_ignored() -> None:
    async with serving(Server("x").asgi()) as site:
        headers = {"connection": "upgrade, http2-settings", "upgrade": "h2c"}
        answer = await site.client.get(site.url + "/healthz", headers=headers)
        after = await site.client.get(site.url + "/healthz")

    assert (answer.status_code, after.status_code) == (200, 200)


async def test_a_client_that_leaves_requests_behind_is_no_error_of_ours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server("x")
    began, ended = asyncio.Event(), asyncio.Event()

    @server.tool
    async def wait() -> None:
        """Wait forever."""
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    call = modern("tools/call", {"name": "wait", "arguments": {}})
    async with serving(server.asgi()) as site:
        _, writer = await site.connect()
        writer.write(post_bytes(call, mirrored(call)) + post_bytes(HELLO, mirrored(HELLO)) * 2)
        await asyncio.wait_for(began.wait(), WAIT_S)
        writer.close()
        await asyncio.wait_for(ended.wait(), WAIT_S)
        after = await site.modern(HELLO)

    assert after.status_code == 200
    assert [record.getMessage() for record in caplog.records] == []
