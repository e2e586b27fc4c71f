"""Sandboxed middleware on wasmcp's typed interfaces, unmodified, in the versions named by date."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from portico import McpError
from tests.library.wasm import building
from tests.library.wasm.test_middleware import client_behind, shop, text

VERSIONS = ("v20251125", "v20250618")
every_version = pytest.mark.parametrize("version", VERSIONS)
every_era = pytest.mark.parametrize("era", ["modern", "legacy"])
_OF = {"v20251125": {}, "v20250618": {"v20251125": "v20250618", "0.1.1": "0.1.8"}}
ADDED = ["triple", "count", "kept", "strange", "none", "wrong", "context", "loop", "listing"]


def guest(version: str) -> Path:
    wit = building.WIT / version
    return building.javascript("typed.js", wit, "reaching-middleware", of=_OF[version])


@every_era
@every_version
async def test_it_hides_adds_refuses_and_passes_on(version: str, era: Any, tmp_path: Path) -> None:
    server, calls = shop()
    async with client_behind(server, tmp_path, era, guest(version)) as client:
        assert [tool.name for tool in await client.list_tools()] == ["echo", "slow", *ADDED]
        assert await text(client, "echo", text="hi") == "hi"
        assert await text(client, "triple", tool="echo") == "1 2 3"
        with pytest.raises(McpError, match="unknown tool: secret"):
            await client.call_tool("secret", {})
        with pytest.raises(McpError, match="refused") as refusal:
            await client.call_tool("echo", {"text": "refuse"})
        assert refusal.value.code == -31000
        assert "one" in str(await client.read_resource("note:one"))
        missing = await text(client, "triple", tool="nothing")
        assert missing == " ".join(["error unknown tool: nothing"] * 3)
    assert calls == ["hi", "1", "2", "3"]


@every_version
async def test_it_gets_the_context_of_its_version(version: str, tmp_path: Path) -> None:
    server, _ = shop()
    async with client_behind(server, tmp_path, path=guest(version)) as client:
        seen = json.loads(await text(client, "context"))
    dated = f"{version[1:5]}-{version[5:7]}-{version[7:]}"
    # Its compiler does not return what it borrows, so it gets no stream.
    assert seen == [dated, "none", "portico"]


@every_era
@every_version
async def test_its_session_is_that_of_the_client(version: str, era: Any, tmp_path: Path) -> None:
    server, _ = shop()
    async with client_behind(server, tmp_path, era, guest(version)) as client:
        assert [await text(client, "count") for _ in range(3)] == [
            "as-u64 1",
            "as-u64 2",
            "as-u64 3",
        ]
        assert await text(client, "strange") == "refused: no-such-session"
        assert await text(client, "kept", value="short") == "5"
        refused = await text(client, "kept", value="x" * 1024 * 1024)
        assert refused.startswith("refused: ")
        assert "is too large" in refused


@pytest.mark.parametrize(
    ("tool", "why"),
    [
        ("none", "returned no result for a request"),
        ("wrong", "answered tools/call with a result of prompts-list"),
        ("loop", "took longer than 5 s"),
    ],
)
@every_version
async def test_one_that_fails_fails_its_request_and_not_the_chain(
    version: str, tool: str, why: str, tmp_path: Path
) -> None:
    server, _ = shop()
    async with client_behind(server, tmp_path, path=guest(version), time_s=5.0) as client:
        await client.list_tools()
        failing = asyncio.create_task(client.call_tool(tool, {}))
        assert await text(client, "echo", text="hi") == "hi"
        with pytest.raises(McpError, match=why):
            await failing
        assert await text(client, "echo", text="hi") == "hi"
