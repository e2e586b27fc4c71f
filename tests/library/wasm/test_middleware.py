"""Sandboxed middleware on Portico's own WIT: what passes it, what it does, how it fails."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from portico import Context, McpError, MemoryClient, Server
from portico.library.chain.views import UNLEARNED_S
from portico.library.components.handler_link import HandlerLink
from portico.library.components.handler_worker import HandlerWorker
from portico.library.components.wasm_link import is_middleware
from tests.gateway.registries import Client
from tests.library.wasm import building, hosting
from tests.library.wasm.wat_guests import written
from tests.support.clock import Clock

ADDED = [
    *("triple", "count", "told", "asked", "sampled", "kept", "trap", "loop", "text", "other"),
    "spin",
]


def guest() -> Path:
    return building.javascript("middleware.js", building.WIT / "own", "middleware")


def shop() -> tuple[Server, list[str]]:
    server, calls = Server("shop"), list[str]()

    @server.tool
    async def echo(text: str) -> str:
        """Return the text."""
        calls.append(text)
        return text

    @server.tool
    async def secret() -> str:
        """For nobody."""
        calls.append("secret")
        return "secret"

    @server.tool
    async def slow(context: Context) -> str:
        """Never end."""
        await asyncio.Event().wait()
        return "late"

    @server.resource("note:one")
    async def note() -> str:
        """A note."""
        return "one"

    return server, calls


@asynccontextmanager
async def client_behind(
    server: Server, folder: Path, era: Any = "modern", path: Path | None = None, **more: Any
) -> AsyncIterator[MemoryClient]:
    questions = {key: more.pop(key) for key in ("elicit_by", "sample_by") if key in more}
    settings = hosting.settings(path or guest(), folder, **more)
    await hosting.compiled(settings)
    time_s = settings.limits.time_s
    link = HandlerLink("guest", lambda: HandlerWorker(hosting.command(settings), time_s=time_s))
    elicit, sample = questions.get("elicit_by"), questions.get("sample_by")
    async with server.test_client(links=[link], era=era, elicit=elicit, sample=sample) as client:
        yield client
    link.worker.stop()
    await link.worker.stopped()


async def text(client: MemoryClient, tool: str, /, **arguments: Any) -> str:
    return (await client.call_tool(tool, arguments)).text


async def test_a_client_is_connected_while_it_is_not_loaded_and_notified_of_its_lists(
    tmp_path: Path, clock: Clock
) -> None:
    server, _ = shop()
    settings, gate = hosting.settings(guest(), tmp_path), tmp_path / "gate"
    await hosting.compiled(settings)
    os.mkfifo(gate)
    worker = hosting.command(settings)
    argv = ("/bin/sh", "-c", f'read line < {gate}; exec "$@"', "sh", *worker.argv)
    link = HandlerLink("guest", lambda: HandlerWorker(replace(worker, argv=argv)))
    endpoint = server.endpoint([link])
    client = Client(endpoint)
    greeting = asyncio.create_task(client.hello())
    await clock.advance(UNLEARNED_S["initialize"])
    assert "prompts" in (await greeting)["result"]["capabilities"]
    listing = asyncio.create_task(client.names())
    await clock.advance(UNLEARNED_S["tools/list"])
    assert await listing == []
    calling = asyncio.create_task(client.said("echo", text="hi"))
    await asyncio.to_thread(gate.write_text, "open\n")
    assert await calling == "hi"
    assert {"method": "notifications/tools/list_changed", "jsonrpc": "2.0"} in client.heard
    assert await client.names() == ["echo", "slow", *ADDED]
    link.worker.stop()
    await link.worker.stopped()


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_it_hides_adds_refuses_and_passes_on(era: Any, tmp_path: Path) -> None:
    server, calls = shop()
    async with client_behind(server, tmp_path, era) as client:
        assert [tool.name for tool in await client.list_tools()] == ["echo", "slow", *ADDED]
        assert await text(client, "echo", text="hi") == "hi"
        assert await text(client, "triple", tool="echo") == "1 2 3"
        with pytest.raises(McpError, match="unknown tool: secret"):
            await client.call_tool("secret", {})
        with pytest.raises(McpError, match="refused") as refusal:
            await client.call_tool("echo", {"text": "refuse"})
        assert refusal.value.code == -31000
        assert "one" in str(await client.read_resource("note:one"))
        assert await text(client, "triple", tool="nothing") == " ".join(
            ["error unknown tool: nothing"] * 3
        )
    assert calls == ["hi", "1", "2", "3"]


@pytest.mark.parametrize(
    ("tool", "why"),
    [
        ("trap", "guest: failed: "),
        ("loop", "guest: took longer than 5 s"),
        ("text", "guest: answered with text that is not a JSON object"),
        ("other", "guest answered tools/call under another id than the request has"),
    ],
)
async def test_one_that_fails_fails_its_request_and_not_the_chain(
    tool: str, why: str, tmp_path: Path
) -> None:
    server, _ = shop()
    async with client_behind(server, tmp_path, time_s=5.0) as client:
        await client.list_tools()
        failing = asyncio.create_task(client.call_tool(tool, {}))
        assert await text(client, "echo", text="hi") == "hi"
        with pytest.raises(McpError, match=why):
            await failing
        assert await text(client, "echo", text="hi") == "hi"


async def test_slow_tools_behind_it_delay_no_other_request_and_their_time_does_not_count(
    tmp_path: Path,
) -> None:
    server, _ = shop()
    left = asyncio.Event()

    async def waits(context: Context) -> str:
        await left.wait()
        return "at last"

    server.tool(waits)
    async with client_behind(server, tmp_path, time_s=5.0) as client:
        slow = [asyncio.create_task(client.call_tool("waits", {})) for _ in range(12)]
        loop = asyncio.get_running_loop()
        until, number = loop.time() + 7, 0
        while loop.time() < until:  # longer than the time of one call
            number += 1
            assert await text(client, "echo", text=str(number)) == str(number)
        left.set()
        assert {result.text for result in await asyncio.gather(*slow)} == {"at last"}


async def test_a_cancelled_call_ends_behind_it_and_its_place_is_free(tmp_path: Path) -> None:
    server, _ = shop()
    async with client_behind(server, tmp_path, concurrency=1) as client:
        for _ in range(3):
            call = asyncio.create_task(client.call_tool("slow", {}))
            await text(client, "echo", text="hi")
            call.cancel()
            await asyncio.wait([call])
        assert await text(client, "echo", text="hi") == "hi"


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_its_notifications_reach_the_client(era: Any, tmp_path: Path) -> None:
    server, _ = shop()
    async with client_behind(server, tmp_path, era) as client:
        told: list[Any] = []
        async with client.changes("note:one") as changes:
            await client.call_tool("told", {}, progress=lambda *news: told.append(news))
            async with asyncio.timeout(60):
                assert (await anext(changes)).uri == "note:one"
        assert told == [(1, 2, "half")]
        noted = [(note.level, note.data, note.logger) for note in client.logged]
        assert noted == [("warning", {"what": "careful"}, "guest")]


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_it_asks_only_if_that_is_granted(era: Any, tmp_path: Path) -> None:
    server, _ = shop()
    asked: list[str] = []

    def person(question: Any) -> Any:
        asked.append(question["message"])
        return {}

    def model(question: Any) -> Any:
        asked.append("model")
        return {"role": "assistant", "model": "m", "content": {"type": "text", "text": "Hello"}}

    answers: Any = {"elicit_by": person, "sample_by": model}
    async with client_behind(server, tmp_path, era, **answers) as client:
        assert await text(client, "asked") == "refused: elicit is not granted"
        assert await text(client, "sampled") == "refused: sample is not granted"
    assert asked == []
    granted: Any = {"elicit": True, "sample": True}
    async with client_behind(server, tmp_path, era, **answers, **granted) as client:
        assert '"action":"accept"' in await text(client, "asked")
        assert '"Hello"' in await text(client, "sampled")
    assert asked == ["[guest] Really?", "model"]


async def test_two_sessions_never_see_each_others_values(tmp_path: Path) -> None:
    server, _ = shop()
    settings = hosting.settings(guest(), tmp_path)
    link = HandlerLink("guest", lambda: HandlerWorker(hosting.command(settings)))
    ana, bo = server.test_client(links=[link]), server.test_client(links=[link])
    async with ana as one, bo as two:
        assert [await text(one, "count") for _ in range(3)] == ["1", "2", "3"]
        assert await text(two, "count") == "1"
        assert await text(one, "kept", value={"a": [1]}) == '{"a":[1]}'
        assert await text(two, "kept", value=None) == "null"
    link.worker.stop()
    await link.worker.stopped()


async def test_a_value_over_its_limit_is_refused(tmp_path: Path) -> None:
    server, _ = shop()
    async with client_behind(server, tmp_path) as client:
        assert await text(client, "kept", value="short") == '"short"'
        with pytest.raises(McpError, match="is too large: it has"):
            await client.call_tool("kept", {"value": "x" * 1024 * 1024})


UNKNOWN = """
(component
  (core module $m (func (export "f") (result i32) (i32.const 1)))
  (core instance $i (instantiate $m))
  (func $f (result u32) (canon lift (core func $i "f")))
  (instance $handler (export "handle" (func $f)))
  (export "EXPORT" (instance $handler)))
"""


@pytest.mark.parametrize(
    ("export", "known"),
    [
        ("wasmcp:server/handler@0.1.0", "wasmcp:server/handler@0.1.0-beta.2"),
        ("wasmcp:mcp-v20251125/server-handler@0.2.0", "server-handler@0.1.1"),
    ],
)
async def test_middleware_of_an_unknown_version_is_refused_with_both_versions(
    export: str, known: str, tmp_path: Path
) -> None:
    file = written(UNKNOWN.replace("EXPORT", export), tmp_path)
    assert is_middleware(str(file))
    worker = HandlerWorker(hosting.command(hosting.settings(file, tmp_path)))

    async def act(method: str, params: Any) -> bytes:
        raise AssertionError(method)

    with pytest.raises(McpError) as refused:
        await worker.handle(b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}', act)
    assert f"exports {export}, but Portico knows" in str(refused.value)
    assert known in str(refused.value)
    await worker.stopped()
