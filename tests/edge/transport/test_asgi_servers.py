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
    elif not data.startswith(b"HEAD "):
        body = await reader.readexactly(int(fields.get(b"content-length", b"0")))
    writer.close()
    for name in (b"date", b"connection"):
        fields.pop(name, None)
    return b"\n".join([status.split()[1], *sorted(map(b": ".join, fields.items())), body])


TALK = modern_call("talk", times=2)
FAIL = modern_call("fail")
NONE = modern_call("none")
TOKEN = "a-token-of-many-letters"
LIST_DATA = post_bytes(LIST, mirrored(LIST))


def get(path: str, *lines: str, method: str = "GET") -> bytes:
    return "\r\n".join(
        [f"{method} {path} HTTP/1.1", *(lines or ("host: localhost",)), "", ""]
    ).encode()


REQUESTS = {
    "a list": LIST_DATA,
    "a call": post_bytes(modern_call("echo", text="x"), mirrored(modern_call("echo"))),
    "a large call": post_bytes(
        modern_call("echo", text="x" * 300_000), mirrored(modern_call("echo"))
    ),
    "a call that talks": post_bytes(TALK, mirrored(TALK)),
    "a call as events": post_bytes(LIST, mirrored(LIST) | STREAM),
    "a failing call": post_bytes(FAIL, mirrored(FAIL)),
    "a call of an unknown tool": post_bytes(NONE, mirrored(NONE)),
    "a list in another version": LIST_DATA.replace(b"version: 2", b"version: 3"),
    "nonsense": LIST_DATA.replace(b'"tools/list"', b'"tools/list@'),
    "another type": LIST_DATA.replace(b"content-type: application/json", b"content-type: text/css"),
    "an unwanted type": LIST_DATA.replace(b"accept: application/json", b"accept: image/gif"),
    "a coding": LIST_DATA.replace(b"\r\n\r\n", b"\r\ncontent-encoding: gzip\r\n\r\n"),
    "a body that is too large": get(
        "/mcp",
        "host: localhost",
        "content-type: application/json",
        "content-length: 99999999",
        method="POST",
    ),
    "many headers": get("/healthz", "host: localhost", *["x: y"] * 101),
    "another path": get("/none"),
    "another method": get("/mcp", "host: localhost", "content-length: 0", method="PUT"),
    "another host": get("/healthz", "host: evil.test"),
    "another origin": get("/healthz", "host: localhost", "origin: http://evil.test"),
    "health": get("/healthz"),
    "readiness": get("/readyz"),
    "only the head": get("/healthz", method="HEAD"),
    "an escaped path": get("/%68ealthz?a=b"),
    "a stream without a session": get("/mcp", "host: localhost", "accept: text/event-stream"),
    "a message without a session": get(
        "/messages",
        "host: localhost",
        "content-length: 0",
        "content-type: application/json",
        method="POST",
    ),
    "a session that is none": post_bytes(tool_call("echo"), {"mcp-session-id": "x"}),
}


@pytest.mark.parametrize("name", ["uvicorn", "hypercorn"])
async def test_each_request_is_answered_with_the_same_bytes(name: str) -> None:
    found: dict[str, dict[str, bytes]] = {}
    for server in ("portico", name):
        async with SERVERS[server](Stage().server.asgi()) as port:
            found[server] = {what: await answer(port, data) for what, data in REQUESTS.items()}
    assert found[name] == found["portico"]
    assert len(set(found[name].values())) > 15


SESSION = {"mcp-session-id": "SESSION", "mcp-protocol-version": "2025-11-25"}
SESSION_LINES = ("host: localhost", *(f"{name}: {value}" for name, value in SESSION.items()))
STATUSES = [b"200", b"202", b"200", b"200", b"400", b"204", b"404"]
"""Of the handshake, and of what follows it."""
LEGACY = [
    post_bytes({"jsonrpc": "2.0", "method": "notifications/initialized"}, SESSION),
    post_bytes(tool_call("echo", text="x"), SESSION),
    post_bytes(tool_call("talk", times=2), SESSION),
    get("/mcp", *SESSION_LINES, "accept: text/event-stream", "last-event-id: none"),
    get("/mcp", *SESSION_LINES, method="DELETE"),
    post_bytes(tool_call("echo", text="x"), SESSION),
]


@pytest.mark.parametrize("name", ["uvicorn", "hypercorn"])
async def test_a_legacy_session_is_answered_with_the_same_bytes(name: str) -> None:
    found: dict[str, list[bytes]] = {}
    for server in ("portico", name):
        async with SERVERS[server](Stage().server.asgi()) as port:
            begun = await answer(port, post_bytes(initialize("2025-11-25")))
            id = begun.partition(b"mcp-session-id: ")[2].partition(b"\n")[0]
            later = [await answer(port, data.replace(b"SESSION", id)) for data in LEGACY]
            found[server] = [each.replace(id, b"SESSION") for each in (begun, *later)]
    assert found[name] == found["portico"]
    assert [each[:3] for each in found[name]] == STATUSES


@pytest.mark.parametrize("name", ["uvicorn", "hypercorn"])
async def test_a_client_without_the_token_is_refused_with_the_same_bytes(name: str) -> None:
    requests = [
        LIST_DATA,
        LIST_DATA.replace(b"\r\n\r\n", b"\r\nauthorization: Bearer no\r\n\r\n"),
        LIST_DATA.replace(b"\r\n\r\n", b"\r\nauthorization: Bearer %b\r\n\r\n" % TOKEN.encode()),
        get("/none", "host: localhost", "accept: text/html"),
        get("/.well-known/oauth-authorization-server"),
    ]
    found: dict[str, list[bytes]] = {}
    for server in ("portico", name):
        async with SERVERS[server](Stage().server.asgi(token=TOKEN)) as port:
            found[server] = [await answer(port, data) for data in requests]
    assert found[name] == found["portico"]
    assert [each[:3] for each in found[name]] == [b"401", b"401", b"200", b"401", b"401"]


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
