"""Calls of tools with an output schema become tasks too, for official clients, which check every
result against the schema that they were listed."""

import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ToolListChangedNotification

from tests.interop.sdk import Heard, only_one
from tests.serve.gateway import Gateway, command, serve_command, written
from tests.support.node import run_node, ts
from tests.support.running import WAIT_S
from tests.support.shared import ROOT
from tests.tasks_protocol.doors import ERAS

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("tasks-structured-promotion")]

SERVER = ROOT / "tests" / "tasks_protocol" / "servers" / "structured.py"
READING = {"degrees": 21.5, "place": "Kraków"}
BUDGET_S = 2.0
QUICK, SLOW = {"seconds": 0}, {"seconds": BUDGET_S + 1}
CALLS: list[tuple[str, dict[str, Any]]] = [("measure", QUICK), ("measure", SLOW), ("count", SLOW)]
SEEN = [[False, READING], [True, READING], [True, {"result": 42}]]
SDKS = [(1, "2025-11-25"), (2, "2025-11-25"), (2, "2026-07-28")]


def config_of(
    folder: Path, *names: str, expose: str = "all", budget: float | None = BUDGET_S
) -> Path:
    """A config with the server in the eras that are named; `patient` is never promoted."""
    words = [sys.executable, str(SERVER)]
    servers = {name: command(words, era=name) for name in names if name in ERAS}
    for server in servers.values() if budget is not None else ():
        server["sync_budget_s"] = budget
    if "patient" in names:
        servers["patient"] = command(words)
    return written(folder / "portico.toml", servers, gateway={"expose": expose})


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway that lists every tool."""
    home = tmp_path_factory.mktemp("structured")
    with Gateway(home, config_of(home, *ERAS, "patient")) as ready:
        yield ready


@asynccontextmanager
async def connected(transport: Any, era: str, **options: Any) -> AsyncIterator[Client]:
    """The official Python client."""
    mode = "auto" if era == "modern" else "legacy"
    try:
        with anyio.fail_after(3 * WAIT_S):
            async with Client(transport, mode=mode, **options) as client:
                assert (client.protocol_version == "2026-07-28") == (era == "modern")
                yield client
    except BaseExceptionGroup as group:
        raise only_one(group) from None


def url(gateway: Gateway, path: str = "/mcp") -> str:
    """The address of an endpoint."""
    return f"http://127.0.0.1:{gateway.port}{path}"


async def structured(client: Client) -> set[str]:
    """The tools that are listed with an output schema."""
    return {tool.name for tool in (await client.list_tools()).tools if tool.output_schema}


async def seen_by(client: Client, server: str) -> list[Any]:
    """For each call, whether it became a task, and its structured result."""
    await _outcome(client, f"{server}__measure", QUICK)  # its process runs from now on
    return [await _outcome(client, f"{server}__{tool}", arguments) for tool, arguments in CALLS]


async def _outcome(client: Client, tool: str, arguments: dict[str, Any]) -> list[Any]:
    result = await client.call_tool(tool, arguments)
    id = (result.structured_content or {}).get("task_id")
    if id is not None:
        result = await client.call_tool("task_status", {"task_id": id, "wait_s": 50})
    return [id is not None, result.structured_content]


@pytest.mark.parametrize("server", ERAS)
@pytest.mark.parametrize("era", ERAS)
async def test_the_python_client_gets_a_task_and_its_structured_result(
    gateway: Gateway, era: str, server: str
) -> None:
    async with connected(streamable_http_client(url(gateway)), era) as client:
        assert await structured(client) == {"patient__measure", "patient__count"}
        assert await seen_by(client, server) == SEEN
        patient = await client.call_tool("patient__measure", SLOW)
        assert patient.structured_content == READING


@pytest.mark.parametrize("era", ERAS)
async def test_a_window_of_the_python_client_gets_them_too(tmp_path: Path, era: str) -> None:
    first, *rest = serve_command(tmp_path / "home", config_of(tmp_path, "legacy"))
    window = stdio_client(StdioServerParameters(command=first, args=rest))
    async with connected(window, era) as client:
        assert await seen_by(client, "legacy") == SEEN


@pytest.mark.parametrize(("sdk", "version"), SDKS)
def test_the_typescript_clients_get_a_task_and_its_structured_result(
    gateway: Gateway, sdk: int, version: str
) -> None:
    calls = [(f"legacy__{tool}", arguments) for tool, arguments in CALLS]
    wanted = {"sdk": sdk, "version": version, "url": url(gateway), "calls": calls}
    done = run_node(ts("promotion.mjs"), json.dumps(wanted))
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert sorted(told["structured"]) == ["patient__count", "patient__measure"]
    assert told["seen"] == SEEN


@pytest.mark.parametrize("era", ERAS)
async def test_the_endpoint_of_one_server_keeps_the_schemas(gateway: Gateway, era: str) -> None:
    async with connected(streamable_http_client(url(gateway, "/servers/modern/mcp")), era) as one:
        assert await structured(one) == {"measure", "count"}
        result = await one.call_tool("measure", SLOW)
        assert result.structured_content == READING


async def test_without_a_budget_every_schema_is_listed_as_it_was(tmp_path: Path) -> None:
    with Gateway(tmp_path / "home", config_of(tmp_path, *ERAS, budget=None)) as plain:
        async with connected(streamable_http_client(url(plain)), "modern") as client:
            listed = await structured(client)
    assert listed == {f"{name}__{tool}" for name in ERAS for tool, _ in CALLS}


async def test_a_pinned_tool_has_no_schema_and_its_description_does(tmp_path: Path) -> None:
    config = config_of(tmp_path, "legacy", expose="search")
    config.write_text(f'{config.read_text()}\npinned = ["legacy__measure"]\n')
    with Gateway(tmp_path / "home", config) as searching:
        async with connected(streamable_http_client(url(searching)), "modern") as client:
            assert await structured(client) == set()
            described = await client.call_tool("describe_tool", {"name": "legacy__measure"})
            assert "outputSchema" in json.dumps(described.structured_content)
            assert (await seen_by(client, "legacy"))[1] == [True, READING]


async def test_a_reload_that_sets_a_budget_changes_the_list(tmp_path: Path) -> None:
    config = config_of(tmp_path, "legacy", "patient", budget=None)
    with Gateway(tmp_path / "home", config) as changing:
        heard = Heard()
        transport = streamable_http_client(url(changing))
        async with connected(transport, "legacy", message_handler=heard) as client:
            assert "legacy__count" in await structured(client)
            config_of(tmp_path, "legacy", "patient")
            # An earlier notification may still be about the first lists of the servers.
            while await structured(client) != {"patient__measure", "patient__count"}:
                await heard.next(ToolListChangedNotification)
            assert (await seen_by(client, "legacy"))[1:] == SEEN[1:]
