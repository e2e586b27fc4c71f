"""Sandboxed middleware before a Python component, a wasm component, a real server and an agent, in
`run` and `serve`, called by the official SDK's client."""

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import MCPError
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.agents.delegation.delegations import Crew, acp, connected, delegate, over_http, words
from tests.library.wasm import hosting
from tests.library.wasm.test_middleware import ADDED, guest
from tests.rigs.running import everything
from tests.serve.gateway import Gateway, command
from tests.support.shared import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("wasm-chain")]
ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])

ECHO = '''
from portico import Server

server = Server("calc")


@server.tool
def echo(text: str) -> str:
    """Return the text."""
    return text


@server.tool
def secret() -> str:
    """For nobody."""
    return "secret"
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("chain")
    (made / "calc.py").write_text(ECHO)
    (made / "own.wasm").symlink_to(hosting.own_guest())
    (made / "guard.wasm").symlink_to(guest())
    hosting.home(made)
    return made


@pytest.fixture(scope="module")
def gateway(folder: Path) -> Iterator[Gateway]:
    crew = Crew(
        folder,
        {"quick": acp({"say": "done"})},
        agents_defaults={"sync_budget_s": 60},
        gateway={"expose": "all", "links": ["guard.wasm"]},
        components__calc={"path": "calc.py"},
        components__own={"path": "own.wasm"},
        servers__real=command(everything("--stdio")),
    )
    with Gateway(crew.home, crew.config) as running:
        yield running


async def check(client: Any, prefix: dict[str, str]) -> None:
    """Call a tool of each component through the middleware, and those that it adds."""
    tools = {tool.name for tool in (await client.list_tools()).tools}
    assert set(ADDED) <= tools
    assert f"{prefix['calc']}secret" not in tools
    added = await client.call_tool(f"{prefix['own']}add", {"a": 1, "b": 2})
    assert words(added) == "3"
    assert words(await client.call_tool(f"{prefix['calc']}echo", {"text": "hi"})) == "hi"
    said = await client.call_tool(f"{prefix['real']}test_simple_text", {})
    assert "simple text" in words(said)
    thrice = await client.call_tool("triple", {"tool": f"{prefix['calc']}echo"})
    assert words(thrice) == "1 2 3"
    with pytest.raises(MCPError, match="unknown tool"):
        await client.call_tool(f"{prefix['calc']}secret", {})
    with pytest.raises(MCPError, match="refused"):
        await client.call_tool(f"{prefix['calc']}echo", {"text": "refuse"})


@ERAS
async def test_it_stands_before_all_members_of_a_gateway_and_before_agents(
    gateway: Gateway, era: str
) -> None:
    async with over_http(gateway.port, era) as client:
        await check(client, {"calc": "calc__", "own": "own__", "real": "real__"})
        assert words(await delegate(client, "quick")) == "done"
        with pytest.raises(MCPError, match="refused"):
            await delegate(client, "quick", prompt="refuse")


@ERAS
async def test_it_stands_before_all_components_of_a_run(folder: Path, era: str) -> None:
    server = StdioServerParameters(
        command=sys.executable,
        args=[
            *("-m", "portico", "run", "guard.wasm", "calc.py", "own.wasm"),
            f"real={shlex.join(everything('--stdio'))}",
        ],
        env={"PORTICO_HOME": str(folder / "home"), "PYTHONPATH": str(ROOT)},
        cwd=folder,
    )
    async with connected(stdio_client(server), era) as client:
        await check(client, {"calc": "", "own": "", "real": ""})


@ERAS
async def test_in_the_middle_it_only_sees_what_is_after_it(folder: Path, era: str) -> None:
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "portico", "run", "calc.py", "guard.wasm", "own.wasm"],
        env={"PORTICO_HOME": str(folder / "home"), "PYTHONPATH": str(ROOT)},
        cwd=folder,
    )
    async with connected(stdio_client(server), era) as client:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        assert tools == ["echo", "secret", "add", "fail", *ADDED]
        assert words(await client.call_tool("secret", {})) == "secret"
        assert words(await client.call_tool("echo", {"text": "refuse"})) == "refuse"
        assert words(await client.call_tool("add", {"a": 1, "b": 2})) == "3"
        with pytest.raises(MCPError, match="refused"):
            await client.call_tool("add", {"a": 1, "b": 2, "text": "refuse"})
