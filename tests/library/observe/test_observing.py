"""Of each call that is over the operator can know: whose it was, and how it went."""

import asyncio

from portico import Server, ToolError
from portico.core.model.context import Context
from portico.core.model.message import Request, Response
from portico.library.observe.observing import outcome
from tests.gateway.registries import Client, World, config, registry


class Seen:
    """What the witness was told."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, str]] = []

    def __call__(
        self,
        request: Request,
        context: Context,
        server: str,
        name: str,
        response: Response | None,
        took_s: float,
    ) -> None:
        self.calls.append((server, name, outcome(request, response)))


def alpha(started: asyncio.Event) -> Server:
    server = Server("alpha", "1")

    @server.tool
    async def add(a: int) -> int:
        return a + 1

    @server.tool
    async def fail() -> str:
        raise ToolError("no")

    @server.tool
    async def wait() -> str:
        started.set()
        await asyncio.Event().wait()
        return ""

    return server


async def test_each_way_in_which_a_call_can_end_is_told_once() -> None:
    seen, started = Seen(), asyncio.Event()
    world = World({"alpha": alpha(started)})
    async with registry(world, config("alpha"), expose="search", witness=seen) as gateway:
        await gateway.refresh(gateway.members)
        client = Client(gateway.endpoint())
        await client.hello()
        await client.call("execute_tool", name="alpha__add", arguments={"a": 1})
        await client.call("alpha__fail")
        await client.call("gateway_status")
        await client.call("execute_tool", name="alpha__nothing")
        await client.call("execute_tool", name="alpha__add", arguments={"a": "x"})
        await client.request("resources/read", {"uri": "memo://nothing"})
    assert seen.calls == [
        ("alpha", "add", "ok"),
        ("alpha", "fail", "tool-error"),
        ("", "gateway_status", "ok"),
        ("", "execute_tool", "tool-error"),
        ("alpha", "add", "tool-error"),
    ]


async def test_queries_of_our_own_commands_are_no_calls_and_can_hide_none() -> None:
    seen = Seen()
    world = World({"alpha": alpha(asyncio.Event())})
    own = {"_meta": {"portico/ownQuery": True}}
    call = {"name": "alpha__add", "arguments": {"a": 1}}
    async with registry(world, config("alpha"), expose="search", witness=seen) as gateway:
        await gateway.refresh(gateway.members)
        client = Client(gateway.endpoint())
        await client.hello()
        await client.result("tools/call", {"name": "gateway_status", **own})
        await client.result(
            "tools/call", {"name": "search_tools", "arguments": {"query": "x"}, **own}
        )
        await client.call("search_tools", query="portico/ownQuery")
        await client.result("tools/call", {"name": "execute_tool", "arguments": call, **own})
        await client.result("tools/call", {**call, **own})
    assert seen.calls == [
        ("", "search_tools", "ok"),
        ("alpha", "add", "ok"),
        ("alpha", "add", "ok"),
    ]


async def test_a_server_that_is_down_is_an_error_and_not_a_cancelled_call() -> None:
    seen = Seen()
    world = World({"alpha": alpha(asyncio.Event())})
    async with registry(world, config("alpha"), expose="search", witness=seen) as gateway:
        await gateway.refresh(gateway.members)
        await gateway.members["alpha"].provider.close()
        world.down = {"alpha"}
        client = Client(gateway.endpoint())
        await client.hello()
        await client.call("execute_tool", name="alpha__add", arguments={"a": 1})
    assert seen.calls == [("alpha", "add", "error -32603")]


async def test_a_cancelled_call_is_told_of() -> None:
    seen, started = Seen(), asyncio.Event()
    world = World({"alpha": alpha(started)})
    async with registry(world, config("alpha"), expose="search", witness=seen) as gateway:
        await gateway.refresh(gateway.members)
        client = Client(gateway.endpoint())
        await client.hello()
        call = asyncio.create_task(client.call("execute_tool", name="alpha__wait"))
        await started.wait()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    assert seen.calls == [("alpha", "wait", "cancelled")]


async def test_the_doorway_to_one_server_alone_is_told_of_too() -> None:
    seen, started = Seen(), asyncio.Event()
    world = World({"alpha": alpha(started)})
    async with registry(world, config("alpha"), expose="search", witness=seen) as gateway:
        await gateway.refresh(gateway.members)
        alone = gateway.server_endpoint("alpha")
        assert alone is not None
        client = Client(alone)
        await client.hello()
        await client.names()
        await client.call("add", a=1)
        call = asyncio.create_task(client.call("wait"))
        await started.wait()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    assert seen.calls == [("alpha", "add", "ok"), ("alpha", "wait", "cancelled")]
