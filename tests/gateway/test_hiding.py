"""Links in front of a gateway: what one hides can be had by no door and in no other way."""

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from portico import (
    Answer,
    Context,
    Handler,
    Link,
    McpError,
    Offer,
    Only,
    Request,
    ResourceLink,
    Server,
)
from portico.core.config.schema import Gateway, Group
from portico.core.model.offer import KINDS
from portico.gateway.members.in_process_server import in_process_entries
from portico.gateway.registry.registry import Registry
from portico.library.chain.endpoint import ChainEndpoint
from tests.gateway.registries import LEGACY, MODERN, Client, Words, World, config, registry
from tests.support.backoff import until

SECRET = "secret"
"""In the name of everything that is hidden."""


class Hidden:
    """A link as somebody writes it: it knows the names that lists show, and no others."""

    names = frozenset({"shop__secret_add", "shop__secret_greet"})

    def __call__(self, next: Handler) -> Handler:
        def guard(request: Request, context: Context) -> Answer:
            reference = request.decode().get("ref", {})
            uri = request.uri or reference.get("uri", "")
            name = reference.get("name", request.name)
            if name in self.names or uri.startswith("memo://secret"):
                raise McpError("not for you", code=-31000)
            return next(request, context)

        return guard

    def view(self, offer: Offer) -> Offer:
        return offer.keep(**dict.fromkeys(KINDS, lambda key: SECRET not in key))


OPEN = Only(
    tools=["*open*", "other__*"], resources=["memo://open*", "memo://other"], prompts=["*open*"]
)
EACH_LINK = pytest.mark.parametrize("link", [OPEN, Hidden()], ids=["Only", "by hand"])
ERAS = pytest.mark.parametrize("version", [LEGACY, MODERN])
MEMBERS = pytest.mark.parametrize("local", [False, True], ids=["upstream", "in process"])

DOORS: dict[str, Callable[[Registry], ChainEndpoint | None]] = {
    "search": lambda gateway: gateway.endpoint(searches=True),
    "all": lambda gateway: gateway.endpoint(searches=False),
    "group": lambda gateway: gateway.endpoint("team"),
    "alone": lambda gateway: gateway.server_endpoint("shop"),
}
EACH_DOOR = pytest.mark.parametrize("door", DOORS)
MERGED = pytest.mark.parametrize("door", ["search", "all", "group"])


def shop(reached: list[str]) -> Server:
    """Two of everything; each writes down that somebody came."""
    server = Server("shop", "1")
    for kind in ("open", "secret"):

        def came(what: str, kind: str = kind) -> str:
            reached.append(f"{kind} {what}")
            return f"{kind} {what}"

        _tool(server, kind, came)
        _resource(server, kind, came)
        _template(server, kind, came)
        _prompt(server, kind, came)
    return server


def _tool(server: Server, kind: str, came: Callable[[str], str]) -> None:
    definition = {
        "name": f"{kind}_add",
        "description": f"Add numbers in {kind}\u200b.",  # which is worth a warning
        "inputSchema": {"type": "object", "properties": {"a": {"type": "integer"}}},
    }
    server.add_tool(definition, lambda given: came(f"sum {given.get('a', 0)}"))


def _resource(server: Server, kind: str, came: Callable[[str], str]) -> None:
    @server.resource(f"memo://{kind}", name=f"{kind}_memo")
    def memo() -> str:
        return came("memo")


def _template(server: Server, kind: str, came: Callable[[str], str]) -> None:
    @server.resource(f"memo://{kind}/{{name}}", name=f"{kind}_note")
    def note(name: str) -> str:
        return came(f"note {name}")

    @server.completion(f"memo://{kind}/{{name}}", "name")
    def names(value: str) -> list[str]:
        return [came("name of a note")]


def _prompt(server: Server, kind: str, came: Callable[[str], str]) -> None:
    @server.prompt(name=f"{kind}_greet")
    def greet(word: str) -> str:
        return came(f"greeting {word}")

    @server.completion(f"{kind}_greet", "word")
    def words(value: str) -> list[str]:
        return [came("word")]


def other() -> Server:
    server = Server("other", "1")
    server.tool(lambda a=0: f"other {a}", name="add")
    server.resource("memo://other")(lambda: "other memo")
    return server


@asynccontextmanager
async def gateway_with(
    *links: Link, reached: list[str] | None = None, local: bool = False, **more: Any
) -> AsyncGenerator[Registry, None]:
    """Two servers behind these links, of the config or of this process."""
    servers = {"shop": shop([] if reached is None else reached), "other": other()}
    groups = {"team": Group(servers=("shop",))}
    settings = config(*(() if local else servers), gateway=Gateway(expose="search"), groups=groups)
    if local:
        more["local"] = in_process_entries(servers, settings)
    async with registry(World(servers), settings, links=links, **more) as made:
        await made.refresh(made.members)
        yield made


async def client_at(gateway: Registry, door: str, version: str) -> "Leaver":
    endpoint = DOORS[door](gateway)
    assert endpoint is not None
    client = Leaver(endpoint, version)
    if version == LEGACY:
        client.introduced = await client.hello()
    return client


class Leaver(Client):
    """A client that does not stay for news."""

    introduced: dict[str, Any] | None = None

    async def closed(self) -> None:
        return


@EACH_LINK
@ERAS
@EACH_DOOR
@MEMBERS
async def test_what_is_hidden_is_in_no_list(
    link: Link, version: str, door: str, local: bool
) -> None:
    async with gateway_with(link, local=local) as gateway:
        client = await client_at(gateway, door, version)
        prefix = "" if door == "alone" else "shop__"
        own = {"search": ["search_tools", "describe_tool", "execute_tool"]}.get(door, [])
        if door in ("all", "alone"):
            own = [f"{prefix}open_add"]
        assert set(own) <= set(await client.names())
        assert f"{prefix}open_greet" in await client.names("prompts")
        assert "memo://open" in await client.names("resources")
        assert "memo://open/{name}" in await client.names("templates")
        kinds = ("tools", "prompts", "resources", "resources/templates")
        said = [await client.request(f"{kind}/list") for kind in kinds]
        said.append(client.introduced or await client.request("server/discover"))
        assert SECRET not in json.dumps(said)


def asks(door: str) -> list[tuple[str, dict[str, Any]]]:
    """Every way to ask for something secret, but for the meta-tools."""
    prefix = "" if door == "alone" else "shop__"
    spelled = [
        "memo://secret",
        "memo://secret/x",
        "MEMO://secret",
        "memo://%73ecret",
        "portico://shop/memo%3A%2F%2Fsecret",
        "portico://shop/memo%3A%2F%2Fsecret%2Fx",
        "portico://shop/memo://secret",
        "portico://shop/memo://secret/x",
        "Portico://SHOP/memo%3a%2f%2fsecret",
    ]
    greet = {"type": "ref/prompt", "name": f"{prefix}secret_greet"}
    note = {"type": "ref/resource", "uri": "memo://secret/{name}"}
    under = {"type": "ref/resource", "uri": "portico://shop/memo://secret/{name}"}
    return [
        ("tools/call", {"name": f"{prefix}secret_add", "arguments": {"a": 1}}),
        ("prompts/get", {"name": f"{prefix}secret_greet", "arguments": {"word": "x"}}),
        *(("resources/read", {"uri": uri}) for uri in spelled),
        ("resources/read", {"uri": "", "name": "secret_memo"}),
        ("completion/complete", {"ref": greet, "argument": {"name": "word", "value": ""}}),
        ("completion/complete", {"ref": note, "argument": {"name": "name", "value": ""}}),
        ("completion/complete", {"ref": under, "argument": {"name": "name", "value": ""}}),
    ]


@EACH_LINK
@ERAS
@EACH_DOOR
@MEMBERS
async def test_what_is_hidden_is_not_reached(
    link: Link, version: str, door: str, local: bool
) -> None:
    reached: list[str] = []
    async with gateway_with(link, reached=reached, local=local) as gateway:
        client = await client_at(gateway, door, version)
        for method, params in asks(door):
            answer = await client.request(method, params)
            assert "error" in answer, (method, params)
        prefix = "" if door == "alone" else "shop__"
        assert await client.said(f"{prefix}open_add", a=3) == "open sum 3"
        await client.result("resources/read", {"uri": "memo://open/y"})
    assert reached == ["open sum 3", "open note y"]


@EACH_LINK
@EACH_DOOR
@MEMBERS
async def test_what_is_hidden_cannot_be_followed(link: Link, door: str, local: bool) -> None:
    uris = [params["uri"] for method, params in asks(door) if params.get("uri")]
    if door == "alone":  # a server is asked there by its own URIs only, and may take any
        uris = [uri for uri in uris if not uri.lower().startswith("portico:")]
    async with gateway_with(link, local=local) as gateway:
        client = await client_at(gateway, door, LEGACY)
        for uri in uris:
            assert "error" in await client.request("resources/subscribe", {"uri": uri}), uri
        await client.result("resources/subscribe", {"uri": "memo://open"})
        assert client.session.subscriptions == {"memo://open"}
        modern = await client_at(gateway, door, MODERN)
        wanted = {"resourceSubscriptions": [*uris, "memo://open"]}
        await modern.request("subscriptions/listen", {"notifications": wanted})
        told = modern.heard[0]["params"]["notifications"]
        assert told == {"resourceSubscriptions": ["memo://open"]}


@EACH_LINK
@ERAS
@MERGED
@MEMBERS
async def test_the_meta_tools_do_not_know_what_is_hidden(
    link: Link, version: str, door: str, local: bool
) -> None:
    reached: list[str] = []
    async with gateway_with(link, reached=reached, local=local) as gateway:
        client = await client_at(gateway, door, version)
        said: list[Any] = []
        for query in ("add numbers in private", "open_add", "shop"):
            for detail in ("brief", "full"):
                found = await client.call("search_tools", query=query, detail=detail, limit=50)
                said.append(found)
        assert "open_add" in json.dumps(said)
        said += [
            await client.call("gateway_status"),
            await client.call("gateway_status", detail="full"),
            await client.call("refresh_tools"),
            await client.call("describe_tool", name="shop__open_add"),
            await client.call("describe_tool", name="shop__nothing"),
            await client.call("search_tools", query="xyzzy"),
        ]
        assert SECRET not in json.dumps(said)
    assert reached == []


@EACH_LINK
@ERAS
@MERGED
@MEMBERS
async def test_the_meta_tools_count_only_what_is_to_be_seen(
    link: Link, version: str, door: str, local: bool
) -> None:
    async with gateway_with(link, local=local) as gateway:
        client = await client_at(gateway, door, version)
        status = (await client.call("gateway_status", detail="full"))["structuredContent"]
        seen = {one["server"]: one for one in status["servers"]}["shop"]
        counts = {"tools": 1, "resources": 1, "templates": 1, "prompts": 1}
        assert seen["tools"] == 1
        assert {kind: seen["lists"][kind] for kind in counts} == counts
        there = 1 if door == "group" else 2
        assert status["gateway"]["tools"] == there
        assert "shop (1 tool)" in await client.said("describe_tool", name="shop__nothing")


@MERGED
@EACH_LINK
async def test_the_status_names_no_change_or_warning_of_what_is_hidden(
    link: Link, door: str
) -> None:
    servers = {"shop": shop([]), "other": other()}
    groups = {"team": Group(servers=("shop",))}

    def named(status: dict[str, Any]) -> list[bool]:
        """Whether changes and warnings name something secret."""
        told = {one["server"]: one for one in status["servers"]}["shop"]
        return [SECRET in json.dumps(told[about]) for about in ("changes", "warnings")]

    async with registry(World(servers), config(*servers, groups=groups), links=[link]) as gateway:
        await gateway.refresh(gateway.members)
        tool = {"name": "secret_new", "inputSchema": {"type": "object"}}
        servers["shop"].add_tool(tool, lambda given: "")
        await gateway.refresh(gateway.members)
        await until(lambda: named(gateway.status()) == [True, True])  # as an operator reads it
        client = await client_at(gateway, door, LEGACY)
        told = await client.call("gateway_status", detail="full")
        assert named(told["structuredContent"]) == [False, False]
        assert SECRET not in json.dumps(told)


@EACH_LINK
@MERGED
async def test_a_search_before_all_is_indexed_counts_only_what_is_to_be_seen(
    link: Link, door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Words, "is_behind", True)
    monkeypatch.setattr(Words, "status", lambda _: {"tools": 3})
    async with gateway_with(link) as gateway:
        client = await client_at(gateway, door, LEGACY)
        found = await client.call("search_tools", query="add numbers")
        there = 1 if door == "group" else 2
        assert found["structuredContent"]["indexing"] == {"indexed": there, "tools": there}


@ERAS
@MERGED
@pytest.mark.parametrize("tool", ["describe_tool", "execute_tool", "search_tools", "shop__{}_add"])
async def test_what_is_hidden_is_answered_like_what_is_not_there(
    version: str, door: str, tool: str
) -> None:
    async with gateway_with(OPEN) as gateway:
        client = await client_at(gateway, door, version)

        async def about(kind: str) -> str:
            name = f"shop__{kind}_add"
            given = {"query": name} if tool == "search_tools" else {"name": name}
            asked = {"name": tool.format(kind), "arguments": {} if "{" in tool else given}
            answer = await client.request("tools/call", asked)
            return json.dumps({**answer, "id": 0}).replace(kind, "...")

        assert await about("secret") == await about("sekret")


@MERGED
async def test_a_wrong_name_is_not_put_right_to_a_hidden_one(door: str) -> None:
    async with gateway_with(OPEN) as gateway:
        client = await client_at(gateway, door, LEGACY)
        for near in ("shop__secre_add", "secret_add", "shop_secret_add", "shop__secret_ad"):
            for tool in ("describe_tool", "execute_tool"):
                said = await client.said(tool, name=near)
                assert "shop__secret_add" not in said.replace(near, "")


@EACH_LINK
@ERAS
async def test_a_result_that_mentions_what_is_hidden_does_not_open_it(
    link: Link, version: str
) -> None:
    reached: list[str] = []
    servers = {"shop": shop(reached), "other": other()}

    points = [ResourceLink(uri=uri, name="x") for uri in ("memo://secret", "memo://secret/x")]
    tool = {"name": "open_links", "inputSchema": {"type": "object"}}
    servers["shop"].add_tool(tool, lambda given: points)
    async with registry(World(servers), config(*servers), links=[link]) as gateway:
        await gateway.refresh(gateway.members)
        client = await client_at(gateway, "all", version)
        blocks = (await client.call("shop__open_links"))["content"]
        for block in blocks:
            assert "error" in await client.request("resources/read", {"uri": block["uri"]})
    assert reached == []


def refusing(uri: str) -> Link:
    """A link that guards one resource, and hides nothing."""

    def link(next: Handler) -> Handler:
        def guard(request: Request, context: Context) -> Answer:
            if request.uri == uri:
                raise McpError("not for you", code=-31000)
            return next(request, context)

        return guard

    return link


@MERGED
@pytest.mark.parametrize(
    "uri", ["portico://shop/memo://secret/x", "portico://SHOP/memo%3a//secret/x"]
)
async def test_a_link_knows_a_resource_by_the_uri_that_is_shown(door: str, uri: str) -> None:
    reached: list[str] = []
    async with gateway_with(refusing("memo://secret/x"), reached=reached) as gateway:
        client = await client_at(gateway, door, LEGACY)
        for method in ("resources/read", "resources/subscribe"):
            assert (await client.request(method, {"uri": uri}))["error"]["code"] == -31000
        modern = await client_at(gateway, door, MODERN)
        wanted = {"resourceSubscriptions": [uri]}
        await modern.request("subscriptions/listen", {"notifications": wanted})
        assert modern.heard[0]["params"]["notifications"] == {}
    assert reached == []


class WithoutFirst:
    """A link that hides the first of two resources with the same URI."""

    def __call__(self, next: Handler) -> Handler:
        return refusing("memo://both")(next)

    def view(self, offer: Offer) -> Offer:
        return offer.keep(resources=lambda uri: uri != "memo://both")


async def test_a_second_owner_keeps_its_uri_when_the_first_is_hidden() -> None:
    servers = {"one": Server("one"), "two": Server("two")}
    for name, server in servers.items():
        server.resource("memo://both")(lambda name=name: name)
    second = "portico://two/memo%3A%2F%2Fboth"
    async with registry(World(servers), config(*servers), links=[WithoutFirst()]) as gateway:
        await gateway.refresh(gateway.members)
        client = await client_at(gateway, "all", LEGACY)
        assert await client.names("resources") == [second]
        read = await client.result("resources/read", {"uri": second})
        assert read["contents"][0]["text"] == "two"
        for first in ("memo://both", "portico://one/memo%3A%2F%2Fboth", "Memo://both"):
            assert "error" in await client.request("resources/read", {"uri": first})
        alone = {name: gateway.server_endpoint(name) for name in servers}
        assert alone["one"] is not None
        assert alone["two"] is not None
        assert await Client(alone["one"]).names("resources") == []
        assert await Client(alone["two"]).names("resources") == ["memo://both"]
        assert "error" in await Client(alone["one"]).request(
            "resources/read", {"uri": "memo://both"}
        )
        await Client(alone["two"]).result("resources/read", {"uri": "memo://both"})
