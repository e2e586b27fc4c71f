"""Middleware in a process of its own, against a stand-in for its worker, in every mood."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from portico import Context, McpError, MemoryClient, Request, Server, Version
from portico.library.components.handler_link import HandlerLink
from portico.library.components.handler_worker import HandlerWorker
from portico.upstream.wires.child_wire import Command
from tests.support.shared import ROOT

RIG = ROOT / "tests" / "rigs" / "handler_rig.py"
NAME = "rig"


def shop() -> tuple[Server, list[str]]:
    server, calls = Server("shop"), list[str]()

    @server.tool
    async def echo(text: str, context: Context) -> str:
        """Return the text."""
        calls.append(text)
        return text

    @server.tool
    async def secret() -> str:
        """For nobody."""
        calls.append("secret")
        return "secret"

    @server.tool
    async def grow() -> str:
        """Another tool."""
        return "grown"

    @server.tool
    async def slow(context: Context) -> str:
        """Take long."""
        await asyncio.sleep(3600)
        return "late"

    @server.resource("note:one")
    async def note() -> str:
        """A note."""
        return "one"

    @server.prompt
    async def greeting(name: str) -> str:
        """A greeting."""
        return f"Hello {name}"

    return server, calls


def link(
    *moods: str, time_s: float = 30.0, heard: Callable[[str], None] = lambda _: None
) -> HandlerLink:
    command = Command((sys.executable, str(RIG), *moods), title=NAME, on_stderr=heard)
    return HandlerLink(NAME, lambda: HandlerWorker(command, time_s=time_s))


@asynccontextmanager
async def client_of(
    server: Server, *links: HandlerLink, **options: Any
) -> AsyncIterator[MemoryClient]:
    async with server.test_client(links=links, **options) as client:
        yield client
    for each in links:
        each.worker.stop()
        await each.worker.stopped()


async def names(client: MemoryClient) -> list[str]:
    return [tool.name for tool in await client.list_tools()]


async def text(client: MemoryClient, tool: str, **arguments: Any) -> str:
    return (await client.call_tool(tool, arguments)).text


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_one_that_does_nothing_changes_nothing(era: Any) -> None:
    server, calls = shop()
    async with client_of(server, link(), era=era) as client:
        assert await names(client) == ["echo", "secret", "grow", "slow"]
        assert await text(client, "echo", text="hi") == "hi"
        assert "one" in str(await client.read_resource("note:one"))
        prompt = await client.get_prompt("greeting", {"name": "Ana"})
        assert "Hello Ana" in str(prompt)
        with pytest.raises(McpError, match="unknown tool: nothing"):
            await client.call_tool("nothing", {})
    assert calls == ["hi"]


async def test_params_and_results_pass_byte_for_byte() -> None:
    class Exact:
        name = "exact"

        def offer(self) -> Any:
            from portico import Offer

            return Offer.of(tools=[{"name": "odd", "inputSchema": {"type": "object"}}])

        def watch(self, changed: Any) -> None:
            pass

        def provide(self, request: Request, context: Context) -> Any:
            from portico import Response

            seen.append(request.params)
            return Response(id=request.id, result=b'{ "b":1.50, "a" : "\\u00e9",  "b2":[ ]}')

    seen: list[bytes] = []
    server = Server.compose("odd", Exact())
    each = link("raw")
    endpoint = server.endpoint([each])
    params = b'{ "name":"odd",  "z":1e2, "arguments": {"x" :"\\u00e9", "y":1.0}}'
    for version in (Version.V2026_07_28, Version.V2025_11_25):
        request = Request(
            method="tools/call", id=b'"o\\u0064d"', name="odd", params=params, version=version
        )
        answer = await endpoint.handle(request, Context())
        assert answer.encode().endswith(b'"result":{ "b":1.50, "a" : "\\u00e9",  "b2":[ ]}}')
        assert answer.id == b'"o\\u0064d"'
    assert seen == [params, params]
    each.worker.stop()
    await each.worker.stopped()


async def test_what_it_hides_cannot_be_found_nor_called() -> None:
    server, calls = shop()
    async with client_of(server, link("hide")) as client:
        assert await names(client) == ["echo", "grow", "slow"]
        with pytest.raises(McpError, match="unknown tool: secret"):
            await client.call_tool("secret", {})
    assert calls == []


async def test_what_it_adds_calls_three_tools_behind_it() -> None:
    server, calls = shop()
    async with client_of(server, link("add")) as client:
        assert await names(client) == ["echo", "secret", "grow", "slow", "extra"]
        assert await text(client, "extra") == "a b c"
    assert calls == ["a", "b", "c"]


async def test_it_replaces_a_tool_of_the_same_name() -> None:
    server, calls = shop()
    async with client_of(server, link("shadow")) as client:
        tools = {tool.name: tool.description for tool in await client.list_tools()}
        assert tools["echo"] == "Another echo."
        assert await text(client, "echo", text="hi") == "a b c"
    assert calls == ["a", "b", "c"]


async def test_it_refuses_a_call() -> None:
    server, calls = shop()
    async with client_of(server, link("refuse")) as client:
        with pytest.raises(McpError, match="refused") as refusal:
            await client.call_tool("echo", {"text": "hi"})
        assert refusal.value.code == -31000
        assert await text(client, "secret") == "secret"
    assert calls == ["secret"]


@pytest.mark.parametrize(
    ("mood", "why"),
    [
        ("exit", "rig exited with code 7"),
        ("changed-id", "rig answered tools/call under another id than the request has"),
        ("not-json", "rig answered tools/call with text that is not a response"),
        ("not-a-request", "rig called next with text that is not a request"),
    ],
)
async def test_one_that_fails_fails_its_request_and_no_other(mood: str, why: str) -> None:
    server, _ = shop()
    async with client_of(server, link(mood)) as client:
        for _ in range(2):
            with pytest.raises(McpError, match=why):
                await client.call_tool("echo", {"text": "hi"})
        if mood == "exit":
            assert await text(client, "secret") == "secret"  # in a new process
        assert len(await names(client)) == 4


async def test_one_that_never_answers_delays_only_its_request_and_is_given_up() -> None:
    server, _ = shop()
    async with client_of(server, link("never", time_s=-4.0)) as client:
        stuck = asyncio.create_task(client.call_tool("echo", {"text": "hi"}))
        assert await text(client, "secret") == "secret"
        with pytest.raises(McpError, match="rig did not answer within 1 s"):
            await stuck


async def test_the_time_of_what_is_behind_it_does_not_count() -> None:
    server, _ = shop()
    gone = asyncio.Event()

    async def waits(context: Context) -> str:
        await asyncio.sleep(1.5)
        gone.set()
        return "after a while"

    server.tool(waits)
    async with client_of(server, link(time_s=-4.0)) as client:
        assert await text(client, "waits") == "after a while"
    assert gone.is_set()


async def test_a_slow_tool_behind_it_delays_no_other_request() -> None:
    server, _ = shop()
    async with client_of(server, link()) as client:
        slow = [asyncio.create_task(client.call_tool("slow", {})) for _ in range(20)]
        assert [await text(client, "echo", text=str(n)) for n in range(5)] == list("01234")
        for each in slow:
            each.cancel()
        await asyncio.wait(slow)


async def test_a_second_answer_and_stray_lines_are_ignored() -> None:
    server, calls = shop()
    async with client_of(server, link("twice", "bad-line")) as client:
        assert [await text(client, "echo", text=str(n)) for n in range(5)] == list("01234")
    assert len(calls) == 5


async def test_it_may_call_next_twice() -> None:
    server, calls = shop()
    async with client_of(server, link("again")) as client:
        assert await text(client, "echo", text="hi") == "hi"
    assert calls == ["hi", "hi"]


async def test_after_its_answer_next_is_refused() -> None:
    server, calls = shop()
    said: asyncio.Queue[str] = asyncio.Queue()
    async with client_of(server, link("late", heard=said.put_nowait)) as client:
        assert await text(client, "echo", text="hi") == "hi"
        async with asyncio.timeout(60):
            words = await said.get()
    assert "portico/next came too late: rig has ended this call already" in words
    assert calls == ["hi"]


async def test_a_cancelled_call_ends_behind_it_too() -> None:
    server, _ = shop()
    began, ended = asyncio.Event(), asyncio.Event()

    async def waits(context: Context) -> str:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "never"

    server.tool(waits)
    async with client_of(server, link()) as client:
        call = asyncio.create_task(client.call_tool("waits", {}))
        await began.wait()
        call.cancel()
        async with asyncio.timeout(60):
            await ended.wait()
        assert await text(client, "echo", text="hi") == "hi"


@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.parametrize("action", ["accept", "decline"])
async def test_it_asks_the_client_before_the_call(era: Any, action: str) -> None:
    server, calls = shop()
    questions: list[str] = []

    def person(question: Any) -> Any:
        questions.append(question["message"])
        return {} if action == "accept" else None

    async with client_of(server, link("ask"), era=era, elicit=person) as client:
        if action == "accept":
            assert await text(client, "echo", text="hi") == "hi"
        else:
            with pytest.raises(McpError, match="decline"):
                await client.call_tool("echo", {"text": "hi"})
    assert questions == ["[rig] Really?"]
    assert calls == (["hi"] if action == "accept" else [])


async def test_a_client_that_cannot_be_asked_gets_an_error() -> None:
    server, calls = shop()
    async with client_of(server, link("ask")) as client:
        with pytest.raises(McpError, match="elicitation"):
            await client.call_tool("echo", {"text": "hi"})
    assert calls == []


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_its_progress_and_logs_reach_the_client(era: Any) -> None:
    server, _ = shop()
    async with client_of(server, link("tell"), era=era) as client:
        told: list[Any] = []
        await client.call_tool("echo", {"text": "hi"}, progress=lambda *news: told.append(news))
        assert told == [(1, 2, "half")]
        assert [(note.level, note.data) for note in client.logged] == [("warning", "careful")]


async def test_a_list_that_it_changes_is_announced() -> None:
    server, _ = shop()
    async with client_of(server, link(), era="legacy") as client:
        assert "extra" not in await names(client)
        async with client.changes() as changes:
            await client.call_tool("grow", {})
            async with asyncio.timeout(60):
                assert (await anext(changes)).kind == "tools"
        assert "extra" in await names(client)


async def test_lists_that_fail_show_nothing_and_calls_fail() -> None:
    server, calls = shop()
    each = link("lists-fail")
    endpoint = server.endpoint([each])
    for method, params in (("tools/list", b"{}"), ("tools/call", b'{"name":"echo"}')):
        request = Request(method=method, id=b"1", params=params, name="echo")
        answer = (await endpoint.handle(request, Context())).decode()
        assert "the link 'rig' failed to filter the lists" in answer["error"]["message"]
    assert calls == []
    each.worker.stop()
    await each.worker.stopped()


async def test_four_in_a_row() -> None:
    server, calls = shop()
    async with client_of(server, link("hide"), link(), link("add"), link()) as client:
        assert await names(client) == ["echo", "grow", "slow", "extra"]
        assert await text(client, "extra") == "a b c"
        assert json.loads(json.dumps(await text(client, "echo", text="é"))) == "é"
    assert calls == ["a", "b", "c", "é"]
