"""Servers of other people behind `portico wrap`, used by the official SDK's client."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.interop.person import Person, text_of
from tests.interop.sdk import Heard, raw
from tests.support import node
from tests.support.running import WAIT_S
from tests.wrap.faults import Wrap, descendants, until, wrap_command

pytestmark = pytest.mark.slow

NOTE = "demo://resource/dynamic/text/1"


@asynccontextmanager
async def over_stdio(home: Path, *words: str, **options: Any) -> AsyncIterator[Client]:
    """A client of the SDK with a `portico wrap` of its own."""
    command, *args = wrap_command(home, *words)
    with anyio.fail_after(3 * WAIT_S):
        pipes = stdio_client(StdioServerParameters(command=command, args=args))
        async with Client(pipes, **options) as client:
            yield client


@asynccontextmanager
async def over_http(port: int, **options: Any) -> AsyncIterator[Client]:
    """A client of the SDK at a `portico wrap --http`."""
    with anyio.fail_after(3 * WAIT_S):
        web = streamable_http_client(f"http://127.0.0.1:{port}/mcp")
        async with Client(web, **options) as client:
            yield client


def npm(name: str, *words: str) -> list[str]:
    return [str(node.node()), str(node.server(name)), *words]


def memory(folder: Path) -> list[str]:
    return ["env", f"MEMORY_FILE_PATH={folder / 'memory.jsonl'}", *npm("memory")]


def git(folder: Path) -> list[str]:
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
    return [sys.executable, "-m", "mcp_server_git", "--repository", str(folder)]


def time(_: Path) -> list[str]:
    return [sys.executable, "-m", "mcp_server_time", "--local-timezone", "UTC"]


SERVERS: dict[str, tuple[Callable[[Path], list[str]], bytes, str, dict[str, Any], str]] = {
    "everything": (
        lambda _: npm("everything", "stdio"),
        b"server-everything",
        "get-sum",
        {"a": 2, "b": 3},
        "5",
    ),
    "filesystem": (
        lambda folder: npm("filesystem", str(folder)),
        b"server-filesystem",
        "list_directory",
        {"path": "FOLDER"},
        "kept.txt",
    ),
    "memory": (memory, b"server-memory", "read_graph", {}, "entities"),
    "git": (git, b"mcp_server_git", "git_status", {"repo_path": "FOLDER"}, "kept.txt"),
    "time": (
        time,
        b"mcp_server_time",
        "convert_time",
        {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"},
        "21:00",
    ),
}
"""By name: its command, how to know its process, and a call with a part of its answer."""


def running(mark: bytes, home: Path) -> set[int]:
    """The processes of a server behind this home's Portico, not those that only have it in their
    command line, nor those of other tests."""
    ours = f"PORTICO_HOME={home}\0".encode()
    mine = [pid for pid in descendants(os.getpid()) if ours in read(pid, "environ")]
    found = {pid: read(pid, "cmdline") for pid in mine}
    return {pid for pid, words in found.items() if mark in words and b"\0portico\0" not in words}


def read(pid: int, what: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{what}").read_bytes()
    except OSError:
        return b""


async def lists(client: Client) -> list[Any]:
    """The full offer of a server."""
    offered = client.server_capabilities
    found: list[Any] = [(await client.list_tools()).tools]
    if offered.resources is not None:
        found.append((await client.list_resources()).resources)
        found.append((await client.list_resource_templates()).resource_templates)
    if offered.prompts is not None:
        found.append((await client.list_prompts()).prompts)
    return [client.server_info, client.instructions, *found]


@pytest.mark.parametrize(
    ("name", "mode"),
    # The npm servers are legacy, so one of them represents modern clients of legacy servers.
    [
        ("everything", "auto"),
        ("everything", "legacy"),
        ("filesystem", "legacy"),
        ("memory", "legacy"),
        ("git", "auto"),
        ("time", "auto"),
    ],
)
async def test_the_second_start_offers_the_same_before_any_child_runs(
    tmp_path: Path, name: str, mode: str
) -> None:
    command_in, mark, tool, arguments, part = SERVERS[name]
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "kept.txt").write_text("kept")
    command = command_in(folder)
    given = {key: str(folder) if of == "FOLDER" else of for key, of in arguments.items()}
    async with over_stdio(tmp_path / "home", "--", *command, mode=mode) as client:
        assert part in await text_of(client, tool, given)
        assert running(mark, tmp_path / "home")
        first = await lists(client)
        assert tool in {tool.name for tool in first[2]}
    assert until(lambda: not running(mark, tmp_path / "home"))
    async with over_stdio(tmp_path / "home", "--", *command, mode=mode) as client:
        assert await lists(client) == first
        assert not running(mark, tmp_path / "home")
        assert part in await text_of(client, tool, given)
        assert running(mark, tmp_path / "home")


@pytest.mark.parametrize("over", ["stdio", "http"])
async def test_all_that_the_reference_server_can_do(tmp_path: Path, over: str) -> None:
    person, heard = Person(), Heard()
    logged: asyncio.Queue[str] = asyncio.Queue()

    async def log(params: types.LoggingMessageNotificationParams) -> None:
        logged.put_nowait(params.level)

    options: dict[str, Any] = {"logging_callback": log, "message_handler": heard}
    options |= {"mode": "legacy", **person.callbacks}
    command = npm("everything", "stdio")
    if over == "stdio":
        async with over_stdio(tmp_path, "--", *command, **options) as client:
            await uses_everything(client, person, heard, logged)
        return
    with Wrap(tmp_path, "--", *command) as portico:
        async with over_http(portico.port, **options) as client:
            await uses_everything(client, person, heard, logged)


async def uses_everything(
    client: Client, person: Person, heard: Heard, logged: "asyncio.Queue[str]"
) -> None:
    while "get-roots-list" not in await tool_names(client):
        # It offers some tools only once it knows the client's capabilities.
        await heard.next(types.ToolListChangedNotification)
    assert "file:///work" in await text_of(client, "get-roots-list")
    assert "42" in str(await client.call_tool("trigger-sampling-request", {"prompt": "?"}))
    assert "Ada" in str(await client.call_tool("trigger-elicitation-request"))
    assert len(person.asked) >= 3

    moved: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        moved.append(progress)

    steps = {"duration": 0.3, "steps": 3}
    await client.call_tool("trigger-long-running-operation", steps, progress_callback=on_progress)
    assert moved == [1, 2, 3]

    read = (await client.read_resource(NOTE)).contents[0]
    assert isinstance(read, types.TextResourceContents)
    assert "Resource 1" in read.text
    city = await client.get_prompt("args-prompt", {"city": "Oslo"})
    assert "Oslo" in str(city.messages)
    ref = types.PromptReference(type="ref/prompt", name="completable-prompt")
    found = await client.complete(ref, {"name": "department", "value": "E"})
    assert found.completion.values == ["Engineering"]

    await raw(client.session, "logging/setLevel", level="debug")
    await client.call_tool("toggle-simulated-logging")
    assert await logged.get()
    await raw(client.session, "resources/subscribe", uri=NOTE)
    await client.call_tool("toggle-subscriber-updates")
    told = await heard.next(types.ResourceUpdatedNotification)
    assert str(told.params.uri) == NOTE


async def tool_names(client: Client) -> set[str]:
    return {tool.name for tool in (await client.list_tools()).tools}


class Folder:
    """A client with one folder as its root."""

    def __init__(self, path: Path) -> None:
        path.mkdir()
        self.path = path
        (path / f"{path.name}.txt").write_text(f"of {path.name}")

    async def roots(self, _: Any) -> types.ListRootsResult:
        return types.ListRootsResult.model_validate({"roots": [{"uri": self.path.as_uri()}]})

    async def is_all_that_is_seen(self, client: Client, other: "Folder") -> None:
        allowed = ""
        # It requests the roots after the handshake, and uses them when they arrive.
        while str(self.path) not in allowed:
            allowed = await text_of(client, "list_allowed_directories")
            assert str(other.path) not in allowed
        mine, theirs = (self.path / f"{self.path.name}.txt", other.path / f"{other.path.name}.txt")
        assert (
            await text_of(client, "read_text_file", {"path": str(mine)}) == f"of {self.path.name}"
        )
        refused = await text_of(client, "read_text_file", {"path": str(theirs)})
        assert refused.startswith("error: Access denied")


async def test_clients_with_different_roots_never_see_each_others_files(tmp_path: Path) -> None:
    one, two, start = (Folder(tmp_path / name) for name in ("one", "two", "start"))
    with Wrap(tmp_path / "home", "--", *npm("filesystem", str(start.path))) as portico:
        # Once the lists are known, a child starts with its client's first call, which has a
        # stream to be asked on; at the very first hello there is none yet.
        for known in (dict[str, Any](), {"list_roots_callback": one.roots}):
            async with over_http(portico.port, mode="legacy", **known) as client:
                await client.list_tools()
        assert until(lambda: len(running(b"server-filesystem", tmp_path / "home")) == 1)
        async with (
            over_http(portico.port, mode="legacy", list_roots_callback=one.roots) as first,
            over_http(portico.port, mode="legacy", list_roots_callback=two.roots) as second,
            over_http(portico.port, mode="legacy") as third,
        ):
            for _ in range(2):
                await one.is_all_that_is_seen(first, two)
                await two.is_all_that_is_seen(second, one)
                await start.is_all_that_is_seen(third, one)
            assert len(running(b"server-filesystem", tmp_path / "home")) == 3
