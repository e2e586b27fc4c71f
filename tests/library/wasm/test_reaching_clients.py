"""Notifications of tools in the sandbox reach the clients of a gateway, over every transport."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from portico import MemoryClient
from portico.edge.client.memory_client import memory_client
from portico.upstream.wires.child_wire import Command
from portico.upstream.wires.streamable_http import Url
from tests.library.wasm import building, hosting
from tests.serve.components import Workshop
from tests.serve.gateway import Gateway, serve_command
from tests.wrap.faults import until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("reaching-clients")]
WAYS = [(over, era) for over in ("http", "window") for era in ("modern", "legacy")]
WAYS.append(("sse", "legacy"))


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("reaching")
    built = building.javascript("reaching.js", building.WIT / "own", "reaching")
    asyncio.run(hosting.compiled(hosting.settings(built, folder)))
    shutil.copy(built, folder / "guest.wasm")
    config = Workshop(folder).write({"guest": {"path": "guest.wasm", "instance": "shared"}})
    with Gateway(folder / "home", config) as running:
        assert until(lambda: all(one["tools"] for one in running.status().values()))
        yield running


@asynccontextmanager
async def client_of(gateway: Gateway, over: str, era: str) -> AsyncIterator[MemoryClient]:
    if over == "window":
        config = gateway.home.parent / "portico.toml"
        address: Any = Command(tuple(serve_command(gateway.home, config)))
    else:
        path = "/sse" if over == "sse" else "/mcp"
        address = Url(f"http://127.0.0.1:{gateway.port}{path}")
    given: Any = {"elicit": None, "sample": None, "roots": None, "log_level": "info"}
    async with memory_client(address, era=era, **given) as client:
        yield client


async def names(client: MemoryClient) -> set[str]:
    return {tool.name for tool in await client.list_tools()}


@pytest.mark.parametrize(("over", "era"), WAYS)
async def test_each_kind_reaches_its_client(gateway: Gateway, over: str, era: str) -> None:
    async with client_of(gateway, over, era) as client, asyncio.timeout(60):
        told: list[Any] = []
        async with client.changes("note:one") as changes:
            await client.call_tool("guest__told", {}, progress=lambda *news: told.append(news))
            while (await anext(changes)).uri != "note:one":
                pass
        assert told == [(1, 2, "half")]
        noted = [(note.level, note.data) for note in client.logged]
        assert noted == [("warning", {"what": "careful"}), ("info", "not JSON")]
        before = await names(client)
        async with client.changes() as changes:
            assert (await client.call_tool("guest__grow", {})).text == "grown"
            while await names(client) == before:
                await anext(changes)
        assert await names(client) ^ before == {"guest__another"}
