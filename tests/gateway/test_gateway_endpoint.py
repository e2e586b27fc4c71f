"""A gateway's one endpoint: what it lists, and where each request leads."""

import asyncio
from typing import Any

import pytest

from portico import Context, Image, Server
from portico.core.config.schema import Gateway, Group, ToolFilter
from portico.core.config.schema import ServerEntry as Entry
from tests.gateway.registries import LEGACY, MODERN, Client, Shelf, World, config, registry
from tests.support.backoff import until
from tests.support.clock import Clock

ERAS = pytest.mark.parametrize("version", [LEGACY, MODERN])


def alpha() -> Server:
    server = Server("alpha", "1", title="Letters")

    @server.tool
    async def add(a: int, b: int = 1) -> int:
        """Add two numbers."""
        return a + b

    @server.tool
    async def picture() -> Image:
        """Draw something."""
        return Image(b"png", "image/png")

    @server.tool
    async def slow(context: Context) -> str:
        """Take long, and say how far it is."""
        await context.progress(1, 2)
        await asyncio.sleep(0.05)
        return "done"

    @server.resource("memo://shared")
    async def shared() -> str:
        return "alpha's"

    @server.prompt
    async def greet(name: str) -> str:
        """Greet somebody."""
        return f"Hello {name}"

    return server


def beta() -> Server:
    server = Server("beta", "1")

    @server.tool
    async def link() -> dict[str, Any]:
        """Point to a resource."""
        return {"uri": "memo://shared"}

    @server.resource("memo://shared")
    async def shared() -> str:
        return "beta's"

    @server.resource("memo://{name}/notes")
    async def notes(name: str) -> str:
        return f"notes of {name}"

    return server


def world() -> World:
    return World({"alpha": alpha(), "beta": beta()})


@ERAS
async def test_search_shows_the_meta_tools_and_what_is_pinned(version: str) -> None:
    pinned = Gateway(expose="search", pinned=("alpha__add",))
    async with registry(world(), config("alpha", "beta", gateway=pinned)) as gateway:
        await gateway.refresh(gateway.members)
        client = Client(gateway.endpoint(), version)
        names = await client.names()
    assert names == [
        "search_tools",
        "describe_tool",
        "execute_tool",
        "execute_read_tool",
        "refresh_tools",
        "gateway_status",
        "alpha__add",
    ]


@ERAS
async def test_all_shows_every_tool_under_its_servers_name(version: str) -> None:
    async with registry(world(), config("alpha", "beta"), expose="all") as gateway:
        await gateway.refresh(gateway.members)
        client = Client(gateway.endpoint(), version)
        assert await client.names() == [
            "alpha__add",
            "alpha__picture",
            "alpha__slow",
            "beta__link",
        ]
        assert (await client.call("alpha__add", a=2, b=3))["structuredContent"] == {"result": 5}


async def test_auto_searches_from_thirty_tools_on_and_without_knowledge() -> None:
    many = Server("many", "1")
    many.load_tools([{"name": f"t{n}", "inputSchema": {"type": "object"}} for n in range(30)])
    few = World({"alpha": alpha(), "many": many})
    shelf = Shelf()
    async with registry(few, config("alpha"), memory=shelf) as unknown:
        assert unknown.searches
        await unknown.refresh(["alpha"])
        assert unknown.searches, "it does not change while running"
    async with registry(few, config("alpha"), memory=shelf) as known:
        assert not known.searches
    async with registry(few, config("alpha", "many"), memory=shelf) as asked:
        await asked.refresh(["many"])
    async with registry(few, config("alpha", "many"), memory=shelf) as large:
        assert large.searches


@ERAS
async def test_search_describe_and_execute_lead_to_a_result(version: str) -> None:
    async with registry(world(), config("alpha", "beta"), expose="search") as gateway:
        await gateway.refresh(gateway.members)
        client = Client(gateway.endpoint(), version)
        found = await client.call("search_tools", query="add two numbers")
        assert found["structuredContent"]["results"][0]["tools"][0] == {
            "name": "alpha__add",
            "server": "alpha",
            "description": "Add two numbers.",
            "parameters": "a:integer*, b:integer",
            "call": "execute_tool",
        }
        assert "**alpha__add**" in found["content"][0]["text"]
        described = await client.call("describe_tool", name="alpha__add")
        tool = described["structuredContent"]["tools"][0]
        assert tool["definition"]["inputSchema"]["required"] == ["a"]
        assert (tool["server"], tool["tool"]) == ("alpha", "add")
        direct = await client.call("alpha__add", a=1, b=2)
        executed = await client.call("execute_tool", name="alpha__add", arguments={"a": 1, "b": 2})
        assert executed == direct


async def test_an_image_comes_back_as_it_was() -> None:
    async with registry(world(), config("alpha"), expose="search") as gateway:
        await gateway.refresh(gateway.members)
        result = await Client(gateway.endpoint()).call("execute_tool", name="alpha__picture")
    assert result["content"] == [{"type": "image", "data": "cG5n", "mimeType": "image/png"}]


async def test_arguments_written_as_a_string_are_unwrapped_once() -> None:
    async with registry(world(), config("alpha"), expose="search") as gateway:
        await gateway.refresh(gateway.members)
        client = Client(gateway.endpoint())
        said = await client.said("execute_tool", name="alpha__add", arguments='{"a": 4}')
        assert said == "5"
        twice = await client.call("execute_tool", name="alpha__add", arguments='"{\\"a\\": 4}"')
        assert twice["isError"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"name": "alpha__add", "arguments": {"a": "x"}}, "a:integer*, b:integer"),
        ({"name": "alpha__add", "arguments": {}}, "a:integer*"),
        ({"name": "alpha__add", "arguments": [1]}, "must be a JSON object"),
        ({"name": "alpha__add", "arguments": "{"}, "not a JSON object"),
        ({"name": "alpha__add", "a": 1}, "`a` must be inside `arguments`"),
        ({"name": "alpha__ad", "arguments": {}}, "the servers are alpha (3 tools)"),
        ({"name": "alpha__ad", "arguments": {}}, "did you mean alpha__add?"),
        ({"name": "search_tools"}, "call it directly"),
        ({"name": 7}, "execute_tool"),
        ({}, "`name` is missing"),
        ({"name": "alpha__add", "arguments": {"a": 1}, "timeout_s": -1}, "timeout_s"),
    ],
)
async def test_a_wrong_call_is_told_what_is_right(arguments: dict[str, Any], words: str) -> None:
    async with registry(world(), config("alpha"), expose="search") as gateway:
        await gateway.refresh(gateway.members)
        result = await Client(gateway.endpoint()).call("execute_tool", **arguments)
    assert result["isError"]
    assert words in result["content"][0]["text"]


async def test_a_server_that_is_down_is_told_of_in_a_tools_own_words(clock: Clock) -> None:
    there = world()
    async with registry(there, config("alpha"), expose="search") as gateway:
        await gateway.refresh(gateway.members)
        there.down = {"alpha"}
        await clock.advance(300)  # nothing was asked of it for so long that it was closed
        client = Client(gateway.endpoint())
        result = await client.call("execute_tool", name="alpha__add", arguments={"a": 1})
    assert result["isError"]
    assert "alpha is down" in result["content"][0]["text"]
    assert result["_meta"]["portico/error"]["kind"] == "start"


async def test_progress_passes_through_execute_tool() -> None:
    async with registry(world(), config("alpha"), expose="search") as gateway:
        await gateway.refresh(gateway.members)
        client = Client(gateway.endpoint())
        params = {
            "name": "execute_tool",
            "arguments": {"name": "alpha__slow"},
            "_meta": {"progressToken": "mine"},
        }
        await client.result("tools/call", params)
    progress = [note["params"] for note in client.heard if "progress" in note["method"]]
    assert progress == [{"progressToken": "mine", "progress": 1, "total": 2}]


@ERAS
async def test_a_second_owner_of_a_uri_is_shown_under_its_name(version: str) -> None:
    async with registry(world(), config("alpha", "beta"), expose="all") as gateway:
        await gateway.refresh(gateway.members)
        client = Client(gateway.endpoint(), version)
        uris = await client.names("resources")
        assert uris == ["memo://shared", "portico://beta/memo%3A%2F%2Fshared"]
        texts = {}
        for uri in uris:
            contents = (await client.result("resources/read", {"uri": uri}))["contents"]
            texts[contents[0]["uri"]] = contents[0]["text"]
        assert texts == dict(zip(uris, ["alpha's", "beta's"], strict=True))
        # What a result of beta's mentions is beta's.
        linked = await client.call("beta__link")
        assert linked["structuredContent"] == {"uri": uris[1]}


async def test_a_template_leads_to_its_owner() -> None:
    async with registry(world(), config("alpha", "beta"), expose="all") as gateway:
        await gateway.refresh(gateway.members)
        client = Client(gateway.endpoint())
        assert await client.names("templates") == ["memo://{name}/notes"]
        read = await client.result("resources/read", {"uri": "memo://ana/notes"})
        assert read["contents"][0]["text"] == "notes of ana"


async def test_prompts_are_prefixed_and_lead_back() -> None:
    async with registry(world(), config("alpha", "beta"), expose="all") as gateway:
        await gateway.refresh(gateway.members)
        client = Client(gateway.endpoint())
        assert await client.names("prompts") == ["alpha__greet"]
        params = {"name": "alpha__greet", "arguments": {"name": "Ana"}}
        messages = (await client.result("prompts/get", params))["messages"]
        assert messages[0]["content"]["text"] == "Hello Ana"


async def test_unknown_names_are_refused_as_the_spec_says() -> None:
    async with registry(world(), config("alpha"), expose="all") as gateway:
        await gateway.refresh(gateway.members)
        client = Client(gateway.endpoint())
        await client.hello()
        for method, params, code in (
            ("tools/call", {"name": "alpha__none"}, -32602),
            ("prompts/get", {"name": "none"}, -32602),
            ("resources/read", {"uri": "memo://none"}, -32002),
            ("no/such", {}, -32601),
        ):
            assert (await client.request(method, params))["error"]["code"] == code


async def test_a_group_sees_its_own_servers_only() -> None:
    grouped = config("alpha", "beta", groups={"letters": Group(servers=("alpha",))})
    async with registry(world(), grouped, expose="all") as gateway:
        await gateway.refresh(gateway.members)
        client = Client(gateway.endpoint("letters"))
        await client.hello()
        assert await client.names() == ["alpha__add", "alpha__picture", "alpha__slow"]
        assert (await client.request("tools/call", {"name": "beta__link"}))["error"]["code"]
        assert await client.names("resources") == ["memo://shared"]
        with pytest.raises(KeyError):
            gateway.endpoint("nobody")


async def test_what_is_denied_is_neither_seen_nor_called() -> None:
    entry = Entry(name="alpha", command="alpha", tools=ToolFilter(allow=("*",), deny=("pict*",)))
    async with registry(world(), config(servers={"alpha": entry}), expose="all") as gateway:
        await gateway.refresh(gateway.members)
        client = Client(gateway.endpoint())
        assert await client.names() == ["alpha__add", "alpha__slow"]
        answer = await client.request("tools/call", {"name": "alpha__picture"})
        assert answer["error"]["code"] == -32602


async def test_hidden_characters_are_shown_and_flagged() -> None:
    odd = Server("odd", "1")
    text = "Harmless\u200b \x1b[2Jtool \U000e0041"
    odd.load_tools([{"name": "x\u202e", "description": text, "inputSchema": {"type": "object"}}])
    async with registry(World({"odd": odd}), config("odd"), expose="all") as gateway:
        await gateway.refresh(["odd"])
        client = Client(gateway.endpoint())
        tool = (await client.result("tools/list"))["tools"][0]
        assert tool["name"].startswith("odd__x_")
        assert tool["description"] == "Harmless\\u{200b} \\u{1b}[2Jtool \\u{e0041}"
        assert tool["_meta"] == {"portico/hidden": True}
        said = await client.said("search_tools", query="harmless")
        assert "\\u{200b}" in said
        assert "hidden characters" in said


async def test_nothing_found_offers_what_there_is() -> None:
    async with registry(world(), config("alpha", "beta"), expose="search") as gateway:
        await gateway.refresh(gateway.members)
        client = Client(gateway.endpoint())
        said = await client.said("search_tools", query="xyzzy")
    assert "nothing found for 'xyzzy'" in said
    assert "alpha (3 tools), beta (1 tool)" in said


async def test_servers_still_to_come_are_named() -> None:
    there = world()
    there.down = {"beta"}
    async with registry(there, config("alpha", "beta"), expose="search") as gateway:
        await gateway.refresh(["alpha"])
        client = Client(gateway.endpoint())
        assert "beta" in (await client.said("search_tools", query="add")).rpartition("come")[2]
        await gateway.refresh(["beta"])
        status = (await client.call("gateway_status", detail="full"))["structuredContent"]
    beta_status = next(one for one in status["servers"] if one["server"] == "beta")
    assert beta_status["pending"]
    assert "beta is down" in beta_status["error"]


async def test_only_real_changes_are_announced(clock: Clock) -> None:
    there = world()
    async with registry(there, config("alpha", "beta"), expose="all") as gateway:
        await gateway.refresh(gateway.members)
        client = Client(gateway.endpoint())
        await client.hello()
        before = await client.names()
        await clock.advance(60)
        client.heard.clear()
        await gateway.refresh(gateway.members)
        await clock.advance(60)
        assert client.heard == []
        there.servers["alpha"].load_tools([{"name": "new", "inputSchema": {"type": "object"}}])
        await until(lambda: bool(client.heard))
        assert await client.names() != before
        assert [note["method"] for note in client.heard] == ["notifications/tools/list_changed"]


async def test_a_client_whose_stream_has_ended_can_still_call_a_server_of_its_own() -> None:
    alone = Server("alone", "1")

    @alone.resource("note://a")
    async def note() -> str:
        """Something to follow."""
        return "a"

    @alone.tool
    async def say() -> str:
        """Say something."""
        return "said"

    own = Entry(name="alone", command="x", sharing="per-client", era="legacy")
    only = {"alone": own}
    async with registry(World({"alone": alone}), config(servers=only), expose="all") as gateway:
        await gateway.refresh(gateway.members)
        client = Client(gateway.endpoint(), MODERN)
        wanted = {"notifications": {"resourceSubscriptions": ["note://a"]}}
        listening = asyncio.create_task(client.request("subscriptions/listen", wanted))
        await until(lambda: bool(client.heard))
        listening.cancel()
        await asyncio.wait({listening})
        for _ in range(2):
            assert await client.said("alone__say") == "said"


def apps() -> Server:
    """A server whose tools differ in whether a client shows a page for them."""
    server = Server("apps", "1")

    @server.tool(meta={"ui": {"resourceUri": "ui://apps/chart"}})
    async def chart(year: int) -> str:
        """Draw a chart."""
        return f"chart of {year}"

    @server.tool(meta={"ui/resourceUri": "ui://apps/old"})
    async def old() -> str:
        """Draw as drafts of the extension did."""
        return "old"

    @server.tool(meta={"ui": "no object", "guide": 1})
    async def plain() -> str:
        """Draw nothing."""
        return "plain"

    return server


@ERAS
@pytest.mark.parametrize("group", [None, "drawing"])
async def test_tools_with_a_page_of_their_own_are_listed_beside_the_search(
    version: str, group: str | None
) -> None:
    settings = Gateway(expose="search", pinned=("apps__chart",))
    groups = {"drawing": Group(servers=("apps",))}
    behind = World({"apps": apps(), "beta": beta()})
    async with registry(behind, config("apps", "beta", gateway=settings, groups=groups)) as gateway:
        await gateway.refresh(gateway.members)
        client = Client(gateway.endpoint(group), version)
        listed = {tool["name"]: tool for tool in (await client.result("tools/list"))["tools"]}
        assert [*listed][6:] == ["apps__chart", "apps__old"]
        assert listed["apps__chart"]["_meta"]["ui"] == {"resourceUri": "ui://apps/chart"}
        assert await client.said("apps__chart", year=2026) == "chart of 2026"


@ERAS
async def test_meta_tools_and_pinned_tools_ask_to_be_loaded_by_clients_that_search_themselves(
    version: str,
) -> None:
    settings = Gateway(expose="search", pinned=("alpha__add",))
    async with registry(world(), config("alpha", gateway=settings)) as gateway:
        await gateway.refresh(gateway.members)
        client = Client(gateway.endpoint(), version)
        shown = (await client.result("tools/list"))["tools"]
        assert [tool["name"] for tool in shown if tool["name"] == "alpha__add"]
        assert all(tool["_meta"]["anthropic/alwaysLoad"] is True for tool in shown)
        every = await Client(gateway.endpoint(None, False), version).result("tools/list")
        loaded = [tool["name"] for tool in every["tools"] if "alwaysLoad" in str(tool.get("_meta"))]
        assert loaded == ["alpha__add"]
        assert len(every["tools"]) > 1
