"""Links in the middle of a composition: they see the members after them, and no others."""

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from portico import Answer, Context, Handler, Link, NameClash, Offer, Request, Response, Server
from portico.core.catalog.catalog import Identity
from portico.gateway.members.in_process_server import in_process_entries
from portico.gateway.registry.registry import CompositionRules, Registry
from tests.gateway.registries import LEGACY, MODERN, Client, World, config, registry

ERAS = pytest.mark.parametrize("version", [LEGACY, MODERN])
KINDS = pytest.mark.parametrize("local", [True, False], ids=["in process", "upstream"])
ANY = {"type": "object"}


def part(name: str) -> Server:
    """A server with one of everything, named after it."""
    server = Server(name)
    server.add_tool({"name": f"{name}_tool", "inputSchema": ANY}, lambda given: f"tool of {name}")
    server.prompt(lambda: f"prompt of {name}", name=f"{name}_prompt")
    server.resource(f"memo://{name}")(lambda: f"memo of {name}")
    return server


def first() -> Server:
    server = part("first")

    @server.tool
    async def calls(name: str, context: Context) -> Any:
        """Call a tool downstream."""
        return await context.call_tool(name)

    return server


class Middle:
    """Writes down what it sees, hides a tool and adds one that calls it."""

    def __init__(self, name: str = "added", shadow: Sequence[str] = ()) -> None:
        self.name = name
        self.shadow = shadow
        self.seen: list[str] = []
        self.offered: tuple[str, ...] = ()

    def __call__(self, next: Handler) -> Handler:
        async def both(request: Request, context: Context) -> Response:
            texts = []
            for name in ("second_tool", "third_tool", "first_tool"):
                answer = (await next(request.calling(name, {}), context)).decode()
                found = answer.get("result", {"content": [{"text": "nothing"}]})
                texts.append(found["content"][0]["text"])
            result = {"content": [{"type": "text", "text": ", ".join(texts)}]}
            more = {"resultType": "complete"} if request.version.modern else {}
            return Response(id=request.id, result=json.dumps({**result, **more}).encode())

        def handle(request: Request, context: Context) -> Answer:
            self.seen.append(request.name or request.uri or request.method)
            own = request.method == "tools/call" and request.name == self.name
            return both(request, context) if own else next(request, context)

        return handle

    def view(self, offer: Offer) -> Offer:
        self.offered = offer.listed("tools").keys
        tool = {"name": self.name, "inputSchema": ANY}
        kept = offer.keep(tools=lambda name: name != "third_tool")
        return kept.adding(tools=[tool], shadow=self.shadow)


@asynccontextmanager
async def composed(
    links: Mapping[str, Sequence[Link]], *, local: bool = True, **more: Any
) -> AsyncGenerator[Registry, None]:
    """Three servers in a row; the first one is always in this process."""
    servers = {"first": first(), "second": part("second"), "third": part("third")}
    rules = CompositionRules(
        identity=lambda: Identity(name="whole", version="1"), order=tuple(servers), links=links
    )
    settings = config(*(() if local else ("second", "third")))
    mine = servers if local else {"first": servers["first"]}
    async with registry(
        World(servers),
        settings,
        local=in_process_entries(mine, settings),
        rules=rules,
        expose="all",
        **more,
    ) as made:
        await made.refresh(made.members)
        yield made


async def client_of(gateway: Registry, version: str) -> Client:
    client = Client(gateway.endpoint(), version)
    if version == LEGACY:
        await client.hello()
    return client


@ERAS
@KINDS
async def test_a_link_sees_the_members_after_it(version: str, local: bool) -> None:
    link = Middle()
    async with composed({"second": [link], "third": [link]}, local=local) as gateway:
        client = await client_of(gateway, version)
        assert await client.names() == ["calls", "first_tool", "second_tool", "added"]
        assert link.offered == ("second_tool", "third_tool")
        assert await client.said("first_tool") == "tool of first"
        await client.result("prompts/get", {"name": "first_prompt"})
        await client.result("resources/read", {"uri": "memo://first"})
        assert link.seen == []
        assert await client.said("second_tool") == "tool of second"
        await client.result("prompts/get", {"name": "third_prompt"})
        await client.result("resources/read", {"uri": "memo://third"})
        assert link.seen == ["second_tool", "third_prompt", "memo://third"]


@ERAS
@KINDS
async def test_a_link_adds_a_tool_that_calls_those_after_it(version: str, local: bool) -> None:
    link = Middle()
    async with composed({"second": [link], "third": [link]}, local=local) as gateway:
        client = await client_of(gateway, version)
        assert await client.said("added") == "tool of second, tool of third, nothing"
        assert "error" in await client.request("tools/call", {"name": "third_tool"})
        assert await client.said("calls", name="added") == "tool of second, tool of third, nothing"
        assert await client.said("calls", name="second_tool") == "tool of second"
        hidden = await client.request(
            "tools/call", {"name": "calls", "arguments": {"name": "third_tool"}}
        )
        assert hidden["error"]["message"] == "unknown tool: third_tool"
        earlier = await client.request(
            "tools/call", {"name": "calls", "arguments": {"name": "first_tool"}}
        )
        assert earlier["error"]["message"] == "unknown tool: first_tool"


@ERAS
async def test_two_links_stand_at_their_own_places(version: str) -> None:
    one, two = Middle("one"), Middle("two")
    async with composed({"second": [one], "third": [one, two]}) as gateway:
        client = await client_of(gateway, version)
        assert await client.names() == ["calls", "first_tool", "second_tool", "two", "one"]
        assert one.offered == ("second_tool", "two")
        assert two.offered == ("third_tool",)
        assert await client.said("two") == "nothing, tool of third, nothing"
        assert (one.seen, two.seen) == (["two"], ["two"])


@pytest.mark.parametrize("name", ["first_tool", "second_tool"])
async def test_a_name_that_exists_is_rejected_at_the_start(name: str) -> None:
    link = Middle(name)
    owner = name.removesuffix("_tool")
    words = f"tool '{name}' is offered by both '{owner}' and the link 'Middle'"
    async with composed({"second": [link], "third": [link]}) as gateway:
        with pytest.raises(NameClash, match=words):
            gateway.check_links()


@ERAS
async def test_a_tool_after_it_is_shadowed_on_request(version: str) -> None:
    link = Middle("second_tool", shadow=["second_tool"])
    async with composed({"second": [link], "third": [link]}) as gateway:
        gateway.check_links()
        client = await client_of(gateway, version)
        assert await client.names() == ["calls", "first_tool", "second_tool"]
        assert await client.said("second_tool") == "tool of second, tool of third, nothing"


@ERAS
async def test_links_before_all_are_replaced_and_those_in_the_middle_stay(version: str) -> None:
    link, outer = Middle(), Middle("outer")
    async with composed({"second": [link], "third": [link]}) as gateway:
        client = await client_of(gateway, version)
        gateway.relink([outer])
        assert await client.names() == ["calls", "first_tool", "second_tool", "added", "outer"]
        assert await client.said("outer") == "tool of second, nothing, tool of first"
        gateway.relink([])
        assert await client.names() == ["calls", "first_tool", "second_tool", "added"]
