"""Links in front of a gateway that add and shadow tools: found by every door, called by name."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from portico import Answer, Context, Handler, Link, NameClash, Offer, Request, Response, Server
from portico.core.config.schema import Gateway, Group
from portico.gateway.members.in_process_server import in_process_entries
from portico.gateway.registry.registry import Registry
from tests.gateway.registries import LEGACY, MODERN, Client, World, config, registry
from tests.support.backoff import until
from tests.support.clock import Clock

ANY = {"type": "object"}
ERAS = pytest.mark.parametrize("version", [LEGACY, MODERN])
MERGED = pytest.mark.parametrize("door", ["search", "all", "group"])
DOORS = pytest.mark.parametrize("door", ["search", "all", "group", "alone"])
MEMBERS = pytest.mark.parametrize("local", [False, True], ids=["upstream", "in process"])


def said(request: Request, text: str) -> Response:
    result = {"content": [{"type": "text", "text": text}], "resultType": "complete"}
    return Response(id=request.id, result=json.dumps(result).encode())


class Adds:
    """Adds a tool, a prompt and a resource, and hides the tool that its tool calls."""

    def __init__(self, name: str = "total", shadow: Sequence[str] = (), hide: str = "add") -> None:
        self.name = name
        self.shadow = shadow
        self.hide = f"shop__{hide}"

    def __call__(self, next: Handler) -> Handler:
        def handle(request: Request, context: Context) -> Answer:
            if request.method == "tools/call" and request.name == self.name:
                return self._total(next, request, context)
            if request.method == "prompts/get" and request.name == "greeting":
                return Response(id=request.id, result=b'{"messages":[],"resultType":"complete"}')
            if request.uri == "memo://added":
                return Response(id=request.id, result=b'{"contents":[],"resultType":"complete"}')
            return next(request, context)

        return handle

    async def _total(self, next: Handler, request: Request, context: Context) -> Response:
        answer = await next(request.calling("shop__add", {"a": 2, "b": 3}), context)
        return said(request, "total " + answer.decode()["result"]["content"][0]["text"])

    def view(self, offer: Offer) -> Offer:
        tool = {"name": self.name, "description": "Compute a grand sum.", "inputSchema": ANY}
        kept = offer.keep(tools=lambda name: name != self.hide)
        return kept.adding(
            tools=[tool],
            prompts=[{"name": "greeting"}],
            resources=[{"uri": "memo://added", "name": "added"}],
            shadow=self.shadow,
        )


def shop() -> Server:
    server = Server("shop", "1")

    @server.tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool
    async def other() -> str:
        """Do something else."""
        return "other"

    return server


@asynccontextmanager
async def gateway_with(
    *links: Link, local: bool = False, server: Server | None = None, **more: Any
) -> AsyncGenerator[Registry, None]:
    servers = {"shop": server or shop()}
    groups = {"team": Group(servers=("shop",))}
    settings = config(*(() if local else servers), gateway=Gateway(expose="search"), groups=groups)
    if local:
        more["local"] = in_process_entries(servers, settings)
    async with registry(World(servers), settings, links=links, **more) as made:
        await made.refresh(made.members)
        yield made


async def client_at(gateway: Registry, door: str, version: str) -> Client:
    endpoint = gateway.server_endpoint("shop")
    if door != "alone":
        endpoint = gateway.endpoint("team" if door == "group" else None, door != "all")
    assert endpoint is not None
    client = Client(endpoint, version)
    if version == LEGACY:
        await client.hello()
    return client


@ERAS
@MERGED
@MEMBERS
async def test_an_added_tool_is_called_by_its_plain_name(
    version: str, door: str, local: bool
) -> None:
    async with gateway_with(Adds(), local=local) as gateway:
        client = await client_at(gateway, door, version)
        if door == "all":
            assert await client.names() == ["shop__other", "total"]
        assert await client.names("prompts") == ["greeting"]
        assert await client.names("resources") == ["memo://added"]
        assert await client.said("total") == "total 5"
        assert await client.said("execute_tool", name="total", arguments={}) == "total 5"
        assert "result" in await client.request("prompts/get", {"name": "greeting"})
        assert "result" in await client.request("resources/read", {"uri": "memo://added"})
        for name in ("shop__add", "execute_tool"):
            arguments = {"name": "shop__add", "arguments": {"a": 1, "b": 1}}
            given = arguments if name == "execute_tool" else arguments["arguments"]
            found = await client.request("tools/call", {"name": name, "arguments": given})
            assert found.get("result", {"isError": True})["isError"] is True


@ERAS
@MERGED
async def test_an_added_tool_is_found_and_described(version: str, door: str) -> None:
    async with gateway_with(Adds()) as gateway:
        client = await client_at(gateway, door, version)
        found = await client.call("search_tools", query="compute a grand sum")
        names = [tool["name"] for tool in found["structuredContent"]["results"][0]["tools"]]
        assert names[0] == "total"
        assert "shop__add" not in names
        described = await client.said("describe_tool", name="total")
        assert described.startswith("**total**\ncall: execute_tool\nCompute a grand sum.")
        assert "total" in await client.said("describe_tool", name="totl")


@ERAS
async def test_nothing_that_a_link_adds_is_at_the_endpoint_of_a_server(version: str) -> None:
    async with gateway_with(Adds()) as gateway:
        client = await client_at(gateway, "alone", version)
        assert await client.names() == ["other"]
        for kind in ("prompts", "resources"):  # the server declares neither
            assert (await client.request(f"{kind}/list"))["error"]["code"] == -32601
        assert "error" in await client.request("tools/call", {"name": "total"})
        assert "error" in await client.request("tools/call", {"name": "add"})


@ERAS
async def test_a_tool_that_is_added_under_the_names_of_a_server_belongs_to_it(
    version: str,
) -> None:
    async with gateway_with(Adds("shop__total")) as gateway:
        client = await client_at(gateway, "alone", version)
        assert await client.names() == ["other", "total"]
        assert await client.said("total") == "total 5"
        merged = await client_at(gateway, "all", version)
        assert await merged.names() == ["shop__other", "shop__total"]
        assert await merged.said("shop__total") == "total 5"


@ERAS
@DOORS
async def test_a_tool_is_shadowed_on_request(version: str, door: str) -> None:
    link = Adds("shop__other", shadow=["shop__other"])
    async with gateway_with(link) as gateway:
        client = await client_at(gateway, door, version)
        name = "other" if door == "alone" else "shop__other"
        assert await client.said(name) == "total 5"
        if door in ("all", "alone"):
            assert await client.names() == [name]


@pytest.mark.parametrize("name", ["shop__other", "search_tools"])
async def test_a_name_that_exists_is_rejected_at_the_start(name: str) -> None:
    async with gateway_with(Adds(name)) as gateway:
        with pytest.raises(NameClash, match=name) as raised:
            gateway.check_links()
    words = "offered by both 'shop' and the link 'Adds'"
    assert words in str(raised.value) or name == "search_tools"


async def test_a_name_that_a_server_adds_later_is_hidden_and_reported_once() -> None:
    told: list[str] = []
    server = shop()
    async with gateway_with(Adds("shop__new"), server=server, report=told.append) as gateway:
        gateway.check_links()
        server.add_tool({"name": "new", "inputSchema": ANY}, lambda given: "newcomer")
        await gateway.refresh(gateway.members)
        for door in ("all", "search", "group", "alone"):
            client = await client_at(gateway, door, LEGACY)
            assert await client.said("new" if door == "alone" else "shop__new") == "total 5"
    clash = "tool 'shop__new' is offered by both 'shop' and the link 'Adds'"
    assert [words for words in told if "link" in words] == [
        f"{clash}; only that of the link is visible"
    ]


class Breaks:
    """A view that raises while it is broken."""

    is_broken = True

    def __call__(self, next: Handler) -> Handler:
        return next

    def view(self, offer: Offer) -> Offer:
        if self.is_broken:
            raise RuntimeError("a secret of ours")
        return offer


@ERAS
@DOORS
@MEMBERS
async def test_a_view_that_raises_shows_nothing(version: str, door: str, local: bool) -> None:
    reached: list[BaseException] = []
    link, server = Breaks(), shop()

    def report(request: Request, error: BaseException) -> None:
        reached.append(error)

    async with gateway_with(link, local=local, server=server, failed=report) as gateway:
        client = await client_at(gateway, door, MODERN)
        client.version = version
        name = "add" if door == "alone" else "shop__add"
        call = {"name": name, "arguments": {"a": 1, "b": 2}}
        asks: list[tuple[str, dict[str, Any]]] = [
            *((f"{kind}/list", {}) for kind in ("tools", "prompts", "resources")),
            ("tools/call", call),
            ("resources/read", {"uri": "memo://x"}),
        ]
        if door != "alone":
            asks += [
                ("tools/call", {"name": "execute_tool", "arguments": call}),
                ("tools/call", {"name": "search_tools", "arguments": {"query": "add"}}),
                ("tools/call", {"name": "gateway_status", "arguments": {}}),
            ]
        for method, params in asks:
            answer = await client.request(method, params)
            assert answer["error"]["code"] == -32603, (method, params)
            assert "secret" not in json.dumps(answer)
        assert [str(error) for error in reached] == ["a secret of ours"]
        link.is_broken = False
        server.add_tool({"name": "new", "inputSchema": ANY}, lambda given: "new")
        await gateway.refresh(gateway.members)
        fine = await client_at(gateway, door, version)
        assert await fine.said(name, a=1, b=2) == "3"


@ERAS
async def test_links_are_replaced_while_clients_are_connected(version: str) -> None:
    async with gateway_with() as gateway:
        doors = {door: await client_at(gateway, door, version) for door in ("all", "alone")}
        before = {door: await client.names() for door, client in doors.items()}
        gateway.relink([Adds()])
        assert await doors["all"].names() == ["shop__other", "total"]
        assert await doors["alone"].names() == ["other"]
        if version == LEGACY:
            changed = {door: _changed(client) for door, client in doors.items()}
            assert changed == {"all": {"tools", "prompts", "resources"}, "alone": {"tools"}}
        for client in doors.values():
            client.heard.clear()
        gateway.relink([Adds()])
        assert [client.heard for client in doors.values()] == [[], []]
        with pytest.raises(NameClash):
            gateway.relink([Adds("shop__other")])
        assert await doors["all"].said("total") == "total 5"
        gateway.relink([])
        assert {door: await client.names() for door, client in doors.items()} == before
        assert "error" in await doors["all"].request("tools/call", {"name": "total"})


def _changed(client: Client) -> set[str]:
    return {message["method"].split("/")[1] for message in client.heard}


async def test_a_link_that_cannot_be_folded_replaces_nothing() -> None:
    def broken(next: Handler) -> Handler:
        raise RuntimeError("not today")

    async with gateway_with(Adds()) as gateway:
        client = await client_at(gateway, "all", LEGACY)
        with pytest.raises(RuntimeError, match="not today"):
            gateway.relink([broken])
        assert await client.said("total") == "total 5"
        assert client.heard == []


async def test_a_request_that_is_running_keeps_its_links(clock: Clock) -> None:
    began, going = asyncio.Event(), asyncio.Event()

    class Slow(Breaks):
        is_broken = False

        def __call__(self, next: Handler) -> Handler:
            async def handle(request: Request, context: Context) -> Response:
                if request.method == "tools/call":
                    began.set()
                    await going.wait()
                return await next(request, context)

            return handle

    async with gateway_with(Slow(), Adds()) as gateway:
        client = await client_at(gateway, "all", LEGACY)
        call = asyncio.ensure_future(client.said("total"))
        hidden = asyncio.ensure_future(client.request("tools/call", {"name": "shop__add"}))
        await began.wait()
        gateway.relink([])
        going.set()
        assert await call == "total 5"
        assert (await hidden)["error"]["message"] == "unknown tool: shop__add"
        assert await client.said("shop__add", a=1, b=2) == "3"


async def test_an_added_tool_is_listed_again_when_the_servers_change() -> None:
    server = shop()
    async with gateway_with(Adds(), server=server) as gateway:
        client = await client_at(gateway, "all", LEGACY)
        assert await client.names() == ["shop__other", "total"]
        server.add_tool({"name": "new", "inputSchema": ANY}, lambda given: "new")
        await gateway.refresh(gateway.members)
        assert await client.names() == ["shop__new", "shop__other", "total"]
        await until(lambda: "tools" in _changed(client))
