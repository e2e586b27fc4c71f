"""Real servers of other people: the official SDK's and the npm reference server."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from portico.core.model.errors import McpError, TargetError
from portico.edge.client.client import Client
from portico.edge.client.client_answers import ClientAnswers
from portico.edge.client.connect import connect
from portico.upstream.wires.child_wire import Command
from portico.upstream.wires.streamable_http import Url
from portico.upstream.wires.wire import Address
from tests.support import node
from tests.upstream.connections.fakes import SERVERS, WAIT_S

pytestmark = pytest.mark.slow

SDK = (sys.executable, str(SERVERS / "sdk_server.py"))


async def person(params: dict[str, Any]) -> dict[str, Any]:
    return {"action": "accept", "content": {"name": "Ada"}}


async def model(params: dict[str, Any]) -> dict[str, Any]:
    assert params["messages"][0]["content"]["text"] == "capital of France?"
    content = {"type": "text", "text": "Paris"}
    return {"role": "assistant", "content": content, "model": "m"}


async def roots(_: dict[str, Any]) -> dict[str, Any]:
    return {"roots": [{"uri": "file:///home"}]}


EVERYTHING = ClientAnswers(elicit=person, sample=model, roots=roots)


@asynccontextmanager
async def started(argv: tuple[str, ...], **env: str) -> AsyncGenerator[asyncio.StreamReader, None]:
    """A server process of ours to talk HTTP to; its stdout."""
    process = await asyncio.create_subprocess_exec(
        *argv, stdout=asyncio.subprocess.PIPE, env={**os.environ, **env}
    )
    assert process.stdout is not None
    try:
        yield process.stdout
    finally:
        process.kill()
        await process.wait()


@asynccontextmanager
async def sdk(transport: str) -> AsyncGenerator[Address, None]:
    if transport == "stdio":
        yield Command((*SDK, "stdio"), title="sdk")
        return
    async with started((*SDK, transport)) as out:
        port = int(await asyncio.wait_for(out.readline(), WAIT_S))
        yield Url(f"http://127.0.0.1:{port}/{'sse' if transport == 'sse' else 'mcp'}")


def text(result: dict[str, Any]) -> str:
    text: str = result["content"][0]["text"]
    return text


@pytest.mark.parametrize(
    ("transport", "era"),
    [
        ("stdio", "modern"),
        ("stdio", "legacy"),
        ("http", "modern"),
        ("http", "legacy"),
        ("sse", "auto"),
    ],
)
async def test_the_official_sdk(transport: str, era: str) -> None:
    logged: list[Any] = []
    moved: list[Any] = []
    async with (
        sdk(transport) as address,
        await connect(address, era=era, answers=EVERYTHING, log=logged.append) as client,
    ):
        assert client.transport == transport
        assert client.modern is (era == "modern")
        assert client.server.info["name"] == "sdk"
        assert client.server.instructions == "Ask me anything."
        if client.modern:
            await client.set_log_level("info")
        assert {tool["name"] for tool in await client.list_tools()} >= {"echo", "add", "region"}
        assert [r["uri"] for r in (await client.listing("resources")).items] == ["note://hello"]
        assert [p["name"] for p in (await client.listing("prompts")).items] == ["describe"]
        assert text(await client.call_tool("echo", {"text": "hi ☃"})) == "hi ☃"
        assert (await client.call_tool("add", {"a": 2}))["structuredContent"] == {"total": 3}
        assert (await client.call_tool("fail"))["isError"] is True
        assert text(await client.call_tool("region", {"where": "Zürich"})) == "in Zürich"
        assert text(await client.call_tool("work", progress=moved.append)) == "worked"
        assert [params["progress"] for params in moved] == [1, 2, 3]
        assert [message["data"] for message in logged] == ["all steps taken"]
        assert text(await client.call_tool("greet")) == "Hello, Ada!"
        assert text(await client.call_tool("capital")) == "Paris"
        assert text(await client.call_tool("where")) == "file:///home"


async def test_the_official_sdk_is_found_to_be_modern() -> None:
    async with sdk("http") as address, await connect(address) as client:
        assert client.modern
        with pytest.raises(McpError, match="did not declare the sampling capability"):
            await client.call_tool("capital")


@asynccontextmanager
async def everything(transport: str) -> AsyncGenerator[Address, None]:
    argv = (str(node.node()), str(node.everything_server()))
    if transport == "stdio":
        yield Command((*argv, "stdio"), title="everything")
        return
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    async with started((*argv, transport), PORT=str(port)):
        path = "sse" if transport == "sse" else "mcp"
        yield Url(f"http://127.0.0.1:{port}/{path}")


async def reached(address: Address) -> Client:
    """Wait for the npm server, which does not report on stdout when it listens."""
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                return await connect(address, answers=EVERYTHING)
            except TargetError as error:
                if error.kind != "network":
                    raise


@pytest.mark.parametrize("transport", ["stdio", "streamableHttp", "sse"])
async def test_the_npm_reference_server(transport: str) -> None:
    moved: list[Any] = []
    async with everything(transport) as address, await reached(address) as client:
        assert not client.modern
        assert client.server.info["name"] == "mcp-servers/everything"
        names = {tool["name"] for tool in await client.list_tools()}
        assert names >= {"echo", "trigger-elicitation-request", "get-roots-list"}
        assert len((await client.listing("resources")).items) == 7
        assert len((await client.listing("templates")).items) == 2
        assert len((await client.listing("prompts")).items) == 4
        assert text(await client.call_tool("echo", {"message": "hi"})) == "Echo: hi"
        steps = {"duration": 0.1, "steps": 3}
        await client.call_tool("trigger-long-running-operation", steps, progress=moved.append)
        assert [params["progress"] for params in moved] == [1, 2, 3]
        assert "accept" in str(await client.call_tool("trigger-elicitation-request"))
        assert "file:///home" in str(await client.call_tool("get-roots-list"))
        image = (await client.call_tool("get-tiny-image"))["content"][1]
        assert image["mimeType"] == "image/png"
