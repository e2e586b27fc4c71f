"""Tools that call the tools downstream of them, in both eras."""

import asyncio
from typing import Any

import pytest

from portico import BlockingContext, Context, Request, Response, Server, ToolError, ToolResult
from portico.core.catalog.catalog import Identity
from portico.core.model.session import Session
from portico.core.model.version import BY_TEXT
from portico.core.protocol.codec import encode
from portico.core.protocol.inbound import read
from portico.gateway.members.in_process_server import in_process_entries
from portico.gateway.registry.registry import CompositionRules
from portico.library.chain.endpoint import ChainEndpoint
from portico.upstream.connections.policy import UpstreamPolicy
from portico.upstream.connections.upstream import Upstream
from portico.upstream.wires.child_wire import Command
from tests.gateway.registries import LEGACY, MODERN, World, config, registry
from tests.library.functions.test_rounds import ABLE, ANA, NAME, Client
from tests.rigs.running import bad
from tests.support.messages import modern, request

ERAS = pytest.mark.parametrize("version", [LEGACY, MODERN])
QUESTION = {"elicitation/create": ANA}


def back(ran: list[str] | None = None) -> Server:
    """The tools that others call."""
    server, done = Server("back"), [] if ran is None else ran

    @server.tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        done.append(f"add {a} {b}")
        return a + b

    @server.tool
    async def greet(context: Context) -> str:
        """Ask for a name."""
        done.append("greet")
        answer = await context.elicit("Who are you?", NAME)
        done.append("greeted")
        return f"Hello {answer.content['name']}"

    @server.tool
    def fail() -> str:
        """Fail."""
        raise ToolError("out of order")

    @server.tool
    async def steps(context: Context) -> str:
        """Report progress."""
        await context.progress(1, 2)
        return "done"

    return server


def front() -> Server:
    """Tools that call others."""
    server = Server("front")

    @server.tool
    async def sum_of_three(a: int, b: int, c: int, context: Context) -> str:
        first = await context.call_tool("add", {"a": a, "b": b})
        second = await context.call_tool("add", {"a": int(first.text), "b": c})
        return second.text

    @server.tool
    def plainly(context: BlockingContext) -> str:
        result: ToolResult = context.call_tool("add", {"a": 1, "b": 2})
        return result.text

    @server.tool
    async def passes(name: str, context: Context) -> Any:
        return await context.call_tool(name)

    @server.tool
    async def welcome(context: Context) -> str:
        total = await context.call_tool("add", {"a": 1, "b": 1})
        hello = await context.call_tool("greet")
        mine = await context.elicit("And you?", NAME)
        return f"{total.text} {hello.text} {mine.content['name']}"

    return server


def composed(*parts: Any) -> Server:
    return Server.compose("whole", *parts)


async def answer(
    server: "Server | Door", version: str, tool: str, client: Client | None = None, **arguments: Any
) -> dict[str, Any]:
    """The whole answer to a call, after all questions."""
    client = client or Client(QUESTION)
    params: dict[str, Any] = {"name": tool, "arguments": arguments}
    if version == LEGACY:
        session = Session(lambda message: None)
        session.version, session.capabilities = BY_TEXT[LEGACY], ABLE
        session.client_info = {"name": "test", "version": "1"}
        context = Context(session=session, peer=client)
        return (await server.handle(request("tools/call", params), context)).decode()
    while True:
        call = modern("tools/call", params, ABLE)
        found = (await server.handle(call, Context(peer=client))).decode()
        result = found.get("result", {})
        if result.get("resultType") != "input_required":
            return found
        asked = result["inputRequests"]
        client.asked += [(one["method"], one["params"]) for one in asked.values()]
        answers = {key: client.answers[one["method"]] for key, one in asked.items()}
        params |= {"inputResponses": answers, "requestState": result["requestState"]}


def text(answer: dict[str, Any]) -> str:
    assert "result" in answer, answer
    return "\n".join(block["text"] for block in answer["result"]["content"])


@ERAS
async def test_a_tool_calls_the_tools_after_it(version: str) -> None:
    whole = composed(front(), back())
    assert text(await answer(whole, version, "sum_of_three", a=1, b=2, c=3)) == "6"
    assert text(await answer(whole, version, "plainly")) == "3"


@ERAS
async def test_a_result_can_be_returned_as_it_is(version: str) -> None:
    whole = composed(front(), back())
    failed = (await answer(whole, version, "passes", name="fail"))["result"]
    assert failed["isError"] is True
    assert failed["content"] == [{"type": "text", "text": "out of order"}]


@ERAS
async def test_a_tool_that_is_not_there_is_an_error(version: str) -> None:
    found = await answer(composed(front(), back()), version, "passes", name="nothing")
    assert found["error"] == {"code": -32602, "message": "unknown tool: nothing"}


@ERAS
@pytest.mark.parametrize("parts", ["alone", "last"])
async def test_the_last_server_has_nothing_downstream(version: str, parts: str) -> None:
    whole = front() if parts == "alone" else composed(back(), front())
    said = text(await answer(whole, version, "plainly"))
    assert said.startswith("cannot call 'add': no server is downstream of this one")


@ERAS
async def test_questions_reach_the_client_and_no_call_is_made_twice(version: str) -> None:
    ran: list[str] = []
    client = Client(QUESTION)
    whole = composed(front(), back(ran))
    assert text(await answer(whole, version, "welcome", client)) == "2 Hello Ana Ana"
    assert [params["message"] for _, params in client.asked] == ["Who are you?", "And you?"]
    assert ran.count("add 1 1") == 1
    assert ran.count("greeted") == 1


@ERAS
async def test_a_question_of_a_legacy_server_continues_the_call_that_waits(version: str) -> None:
    upstream = Upstream(Command(tuple(bad("stdio", "plain"))), UpstreamPolicy())
    server = Server("front")

    @server.tool
    async def asking(context: Context) -> Any:
        """Have another server ask."""
        return await context.call_tool("ask", {"kind": "elicitation"})

    try:
        await upstream.fetch_catalog()
        whole = composed(server, upstream)
        client = Client(QUESTION)
        said = text(await answer(whole, version, "asking", client))
        assert "Ana" in said
        assert len(client.asked) == 1
        assert upstream.status()["held"] == 0
    finally:
        await upstream.close()


@ERAS
async def test_the_progress_of_the_inner_call_is_its_own(version: str) -> None:
    client = Client(QUESTION)
    whole = composed(front(), back())
    params = {"name": "passes", "arguments": {"name": "steps"}, "_meta": {"progressToken": 7}}
    if version == MODERN:
        call = modern("tools/call", params, ABLE)
        call["params"]["_meta"]["progressToken"] = 7
    else:
        call = request("tools/call", params)
    assert text((await whole.handle(call, Context(peer=client))).decode()) == "done"
    assert client.notified == []


@ERAS
@pytest.mark.parametrize("plain", [True, False], ids=["plain", "async"])
async def test_the_inner_call_ends_with_the_outer_one(version: str, plain: bool) -> None:
    began, ended = asyncio.Event(), asyncio.Event()
    slow, caller = Server("slow"), Server("caller")

    @slow.tool
    async def wait() -> str:
        """Wait for ever."""
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    def plainly(context: BlockingContext) -> str:
        return str(context.call_tool("wait"))

    async def outer(context: Context) -> str:
        return str(await context.call_tool("wait"))

    caller.tool(plainly if plain else outer, name="outer")
    call = asyncio.ensure_future(answer(composed(caller, slow), version, "outer"))
    await began.wait()
    call.cancel()
    await ended.wait()
    with pytest.raises(asyncio.CancelledError):
        await call


def again() -> Server:
    """A tool that calls itself through the gateway."""
    server = Server("again")

    @server.tool
    async def deeper(context: Context) -> Any:
        return await context.call_tool("again__deeper")

    @server.tool
    async def total(context: Context) -> str:
        return (await context.call_tool("back__add", {"a": 2, "b": 3})).text

    @server.tool
    async def hello(context: Context) -> str:
        return (await context.call_tool("back__greet")).text

    return server


@ERAS
async def test_in_a_gateway_a_member_calls_any_tool_of_the_endpoint(version: str) -> None:
    seen: list[tuple[str, str]] = []

    def witness(*call: Any) -> None:
        seen.append(call[2:4])

    settings = config("back")
    local = in_process_entries({"again": again()}, settings)
    world = World({"back": back()})
    async with registry(world, settings, local=local, witness=witness) as gateway:
        await gateway.refresh(gateway.members)
        door = gateway.endpoint()
        found = await answer(Door(door), version, "again__total")
        assert text(found) == "5"
        assert seen == [("back", "add"), ("again", "total")]
        execute: Any = {"name": "again__total", "arguments": {}}
        found = await answer(Door(door), version, "execute_tool", **execute)
        assert text(found) == "5"
        client = Client(QUESTION)
        assert text(await answer(Door(door), version, "again__hello", client)) == "Hello Ana"
        assert len(client.asked) == 1
        alone = gateway.server_endpoint("again")
        assert alone is not None
        assert text(await answer(Door(alone), version, "total")) == "5"


@ERAS
async def test_tools_that_call_each_other_end_at_a_depth(version: str) -> None:
    settings = config()
    local = in_process_entries({"again": again()}, settings)
    async with registry(World(), settings, local=local) as gateway:
        found = await answer(Door(gateway.endpoint()), version, "again__deeper")
        assert "8 tools call each other already" in found["error"]["message"]


class Door:
    """An endpoint that takes messages."""

    def __init__(self, endpoint: ChainEndpoint) -> None:
        self._endpoint = endpoint

    async def handle(self, message: dict[str, Any], context: Context) -> Response:
        version = context.session.version if context.session is not None else None
        read_request = read(encode(message), version or BY_TEXT[LEGACY], None)
        assert isinstance(read_request, Request)
        return await self._endpoint.handle(read_request, context)


async def test_work_that_outlives_its_handler_cannot_call() -> None:
    kept: list[Context] = []
    server = Server("leaves")

    @server.tool
    async def leave(context: Context) -> str:
        """Keep the context."""
        kept.append(context)
        return "left"

    await answer(composed(server, back()), MODERN, "leave")
    with pytest.raises(RuntimeError, match="not bound"):
        await kept[0].call_tool("add", {"a": 1, "b": 2})


async def answers_of_composition(version: str, local: Any, rules: CompositionRules) -> list[str]:
    settings = config("back")
    entries = in_process_entries(local, settings)
    world = World({"back": back()})
    async with registry(world, settings, local=entries, rules=rules, expose="all") as gateway:
        await gateway.refresh(gateway.members)
        door = Door(gateway.endpoint())
        client = Client(QUESTION)
        said = [
            text(await answer(door, version, "sum_of_three", a=1, b=2, c=3)),
            text(await answer(door, version, "plainly")),
            text(await answer(door, version, "welcome", client)),
        ]
        assert len(client.asked) == 2
        return said


@ERAS
async def test_in_a_composition_the_tools_of_later_components_are_downstream(
    version: str,
) -> None:
    rules = CompositionRules(
        identity=lambda: Identity(name="whole", version="1"), order=("front", "back")
    )
    said = await answers_of_composition(version, {"front": front()}, rules)
    assert said == ["6", "3", "2 Hello Ana Ana"]


@ERAS
async def test_a_component_calls_the_later_tool_that_it_shadows(version: str) -> None:
    first, last = Server("first"), Server("last")

    async def doubled(context: Context) -> str:
        return 2 * (await context.call_tool("name")).text

    first.tool(doubled, name="name")
    last.tool(lambda: "Ana", name="name")
    local = in_process_entries({"last": last, "first": first}, config())
    rules = CompositionRules(
        identity=lambda: Identity(name="whole", version="1"),
        order=("first", "last"),
        shadows=frozenset({"name"}),
    )
    async with registry(World(), config(), local=local, rules=rules, expose="all") as gateway:
        door = Door(gateway.endpoint())
        assert text(await answer(door, version, "name")) == "AnaAna"
