"""`server.asgi()` under other ASGI servers gives the same answers as under our own server."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.support.backoff import until
from tests.support.messages import initialize, modern
from tests.support.running import free_port
from tests.support.stage import Stage
from tests.support.web import (
    WAIT_S,
    mirrored,
    modern_call,
    post_bytes,
    serving,
    soon,
    tool_call,
    under_uvicorn,
)

LIST = modern("tools/list")
STREAM = {"accept": "text/event-stream"}


@asynccontextmanager
async def under_hypercorn(app: object) -> AsyncIterator[int]:
    """Serve an ASGI app with hypercorn; yields its port."""
    from hypercorn.asyncio import serve
    from hypercorn.config import Config

    port, stop = free_port(), asyncio.Event()
    config = Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.include_server_header = False
    config.graceful_timeout = 1
    serving = asyncio.create_task(serve(app, config, shutdown_trigger=stop.wait))  # type: ignore[arg-type]

    async def accepts() -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return False
        writer.close()
        return True

    try:
        await until(accepts)
        yield port
    finally:
        stop.set()
        await serving


@asynccontextmanager
async def under_our_own(app: object) -> AsyncIterator[int]:
    async with serving(app) as site:  # type: ignore[arg-type]
        yield site.port


SERVERS = {"portico": under_our_own, "uvicorn": under_uvicorn, "hypercorn": under_hypercorn}
"""Each of them serves an app, and yields its port."""


async def answer(port: int, data: bytes) -> bytes:
    """Send a request, and return its response in one spelling: with sorted headers, without a date
    and `connection`, and with the pieces of a stream joined."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), WAIT_S)
    status, *lines = head[:-4].split(b"\r\n")
    pairs = (line.partition(b":") for line in lines)
    fields = {name.lower(): value.strip() for name, _, value in pairs}
    body = b""
    if fields.get(b"transfer-encoding") == b"chunked":
        while size := int(await asyncio.wait_for(reader.readline(), WAIT_S), 16):
            body += (await reader.readexactly(size + 2))[:-2]
    else:
        body = await reader.readexactly(int(fields[b"content-length"]))
    writer.close()
    for name in (b"date", b"connection"):
        fields.pop(name, None)
    return b"\n".join([status.split()[1], *sorted(map(b": ".join, fields.items())), body])


TALK = modern_call("talk", times=2)
REQUESTS = {
    "a list": post_bytes(LIST, mirrored(LIST)),
    "a call": post_bytes(modern_call("echo", text="x"), mirrored(modern_call("echo"))),
    "a large call": post_bytes(
        modern_call("echo", text="x" * 300_000), mirrored(modern_call("echo"))
    ),
    "a call that talks": post_bytes(TALK, mirrored(TALK)),
    "a call as events": post_bytes(LIST, mirrored(LIST) | STREAM),
    "nonsense": post_bytes(LIST, mirrored(LIST)).replace(b'"tools/list"', b'"tools/list@'),
    "another path": b"GET /none HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "another method": b"PUT /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n",
    "another host": b"GET /healthz HTTP/1.1\r\nhost: evil.test\r\n\r\n",
    "health": b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "a session that is none": post_bytes(tool_call("echo"), {"mcp-session-id": "x"}),
}


@pytest.mark.parametrize("name", ["uvicorn", "hypercorn"])
async def test_each_request_is_answered_with_the_same_bytes(name: str) -> None:
    found: dict[str, dict[str, bytes]] = {}
    for server in ("portico", name):
        async with SERVERS[server](Stage().server.asgi()) as port:
            found[server] = {what: await answer(port, data) for what, data in REQUESTS.items()}
    assert found[name] == found["portico"]
    assert len(found[name]) == len(REQUESTS)


@pytest.mark.parametrize("name", list(SERVERS))
async def test_a_session_with_a_stream_works_and_a_client_that_leaves_is_noticed(name: str) -> None:
    stage = Stage()
    async with SERVERS[name](stage.server.asgi()) as port:
        begun = await answer(port, post_bytes(initialize("2025-11-25")))
        session = re.search(rb"mcp-session-id: (\S+)", begun)
        assert session is not None
        headers = {"mcp-session-id": session[1].decode(), "mcp-protocol-version": "2025-11-25"}
        lines = "".join(f"{name}: {value}\r\n" for name, value in (headers | STREAM).items())
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET /mcp HTTP/1.1\r\nhost: localhost\r\n{lines}\r\n".encode())
        await asyncio.wait_for(reader.readuntil(b"id: "), WAIT_S)
        stage.server.remove_tool("fail")
        await asyncio.wait_for(reader.readuntil(b"list_changed"), WAIT_S)
        writer.close()

        call = modern_call("wait", talk_first=True)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(post_bytes(call, mirrored(call)))
        await asyncio.wait_for(reader.readuntil(b"progress"), WAIT_S)
        writer.close()
        await soon(stage.cancelled)
