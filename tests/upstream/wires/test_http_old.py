"""Servers of the old transport, HTTP and SSE, and what only looks like one."""

import asyncio

import pytest

from portico.core.model.errors import McpError, TargetError
from portico.edge.client.connect import connect
from portico.upstream.wires.credentials import StaticToken
from portico.upstream.wires.streamable_http import Url
from tests.upstream.connections.fakes import legacy
from tests.upstream.connections.web_server import Asked, event, reply, stream, web_server
from tests.upstream.connections.web_talks import Writer


class OldServer:
    """A server of the old transport, for one client."""

    def __init__(self, endpoint: bytes = b"/post?s=1") -> None:
        self._endpoint = endpoint
        self._out: Writer | None = None
        self.left = asyncio.Event()

    async def talk(self, asked: Asked, writer: Writer) -> None:
        if asked.verb == "GET":
            self._out = writer
            stream(writer, event(self._endpoint, kind="endpoint"))
            await writer.drain()
            await self.left.wait()
            writer.close()
        elif asked.path == "/mcp":
            reply(writer, 405)
        else:
            assert self._out is not None
            reply(writer, 202, b"Accepted", "text/plain")
            if asked.method == "tools/call":
                self.called()
            else:
                for answer in legacy(asked.message, "2024-11-05"):
                    self._out.write(event(answer, kind="message"))

    def called(self) -> None:
        self.left.set()


async def test_the_old_transport_is_found_and_used() -> None:
    old = OldServer()
    async with web_server(old.talk) as server:
        async with await connect(Url(server.url, credentials=StaticToken("t0p"))) as client:
            assert client.transport == "sse"
            with pytest.raises(McpError):
                await client.request("no/such")
        posts = [asked.path for asked in server.asked]
        assert posts == ["/mcp", "/mcp", "/mcp", "/post?s=1", "/post?s=1", "/post?s=1"]
        assert {asked.headers["authorization"] for asked in server.asked} == {"Bearer t0p"}


async def test_an_old_server_that_leaves_fails_its_pending_calls() -> None:
    old = OldServer()
    async with (
        web_server(old.talk) as server,
        await connect(Url(server.url)) as client,
    ):
        with pytest.raises(TargetError, match="closed its event stream"):
            await client.call_tool("t")
        with pytest.raises(TargetError, match="closed its event stream"):
            await client.call_tool("t")


async def test_an_old_server_may_not_send_us_elsewhere() -> None:
    async with web_server(OldServer(b"http://127.0.0.2:1/steal").talk) as server:
        with pytest.raises(TargetError, match="HTTP 405"):
            await connect(Url(server.url, credentials=StaticToken("t0p")))
        assert "/steal" not in [asked.path for asked in server.asked]


async def test_a_page_is_no_server() -> None:
    async def talk(asked: Asked, writer: Writer) -> None:
        if asked.verb == "GET":
            reply(writer, 200, b"<h1>Welcome</h1>", "text/html")
        else:
            reply(writer, 404, b"<h1>Not Found</h1>", "text/html")

    async with web_server(talk) as server:
        with pytest.raises(TargetError, match="returned HTTP 404"):
            await connect(Url(server.url))
