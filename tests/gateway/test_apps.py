"""Two accounts of one server with pages (MCP Apps): each tool gets the page of its own account."""

import asyncio
from typing import Any

import msgspec
import pytest

from portico import Contents, Embedded, Handler, Offer, ResourceLink, Server, ToolResult
from portico.core.config.schema import Gateway, Group
from portico.core.model.offer import Listed
from tests.gateway.registries import LEGACY, MODERN, Client, World, config, registry
from tests.support.backoff import until

ERAS = pytest.mark.parametrize("version", [LEGACY, MODERN])
HTML = "text/html;profile=mcp-app"
PAGE = "ui://budget/page.html"
CSP = {"ui": {"csp": {"connectDomains": ["https://api.example.test"]}, "prefersBorder": True}}


def account(name: str, page: str = PAGE, *, lists: bool = True) -> Server:
    """An account whose page says whose it is."""
    server = Server("budget", "1")
    in_meta = {"ui": {"resourceUri": page, "visibility": ["model"]}, "ui/resourceUri": page}

    @server.tool(meta=in_meta)
    async def show() -> ToolResult:
        """Show the budget."""
        blocks = [ResourceLink(uri=page, name="page"), Embedded(uri=page, body=f"page of {name}")]
        return ToolResult(content=blocks, meta={"ui": {"resourceUri": page}})

    @server.tool
    async def touch() -> str:
        """Change the page."""
        server.resource_updated(page)
        return "touched"

    if lists:

        @server.resource(page, name=page, mime_type=HTML, meta=CSP)
        async def read() -> Contents:
            return Contents(f"<p>page of {name}", mime_type=HTML, meta=CSP)

    else:

        @server.resource("ui://budget/{+rest}", mime_type=HTML)
        async def family(rest: str) -> str:
            return f"{rest} of {name}"

        @server.completion("ui://budget/{+rest}", "rest")
        async def rests(value: str) -> list[str]:
            return [f"{value}-{name}"]

    return server


def two(**more: Any) -> World:
    return World({"work": account("work", **more), "home": account("home", **more)})


def uris_of(tool: dict[str, Any]) -> tuple[str, str]:
    """The page of a tool, in both spellings."""
    return tool["_meta"]["ui"]["resourceUri"], tool["_meta"]["ui/resourceUri"]


async def page_of(client: Client, uri: str) -> str:
    (contents,) = (await client.result("resources/read", {"uri": uri}))["contents"]
    assert contents["uri"] == uri
    text: str = contents["text"]
    return text


@ERAS
@pytest.mark.parametrize("expose", ["all", "search"])
async def test_each_account_has_its_own_page(version: str, expose: str) -> None:
    settings = Gateway(expose=expose)
    async with registry(two(), config("work", "home", gateway=settings)) as gateway:
        await gateway.refresh(gateway.members)
        client = Client(gateway.endpoint(), version)
        listed = {tool["name"]: tool for tool in (await client.result("tools/list"))["tools"]}
        assert uris_of(listed["work__show"]) == (PAGE, PAGE)
        second = "ui://home--budget/page.html"
        assert uris_of(listed["home__show"]) == (second, second)
        assert listed["home__show"]["_meta"]["ui"]["visibility"] == ["model"]
        assert await client.names("resources") == [PAGE, second]
        assert await page_of(client, PAGE) == "<p>page of work"
        assert await page_of(client, second) == "<p>page of home"


@ERAS
async def test_a_page_and_what_describes_it_stay_as_they_are(version: str) -> None:
    async with registry(two(), config("work", "home")) as gateway:
        await gateway.refresh(gateway.members)
        client = Client(gateway.endpoint(), version)
        first, second = (await client.result("resources/list"))["resources"]
        assert {**second, "uri": first["uri"]} == first
        assert (second["name"], second["mimeType"], second["_meta"]) == (PAGE, HTML, CSP)
        read = await client.result("resources/read", {"uri": second["uri"]})
        assert read["contents"] == [
            {"uri": second["uri"], "mimeType": HTML, "text": "<p>page of home", "_meta": CSP}
        ]


@ERAS
@pytest.mark.parametrize("through", ["directly", "execute_tool"])
async def test_results_name_the_page_of_their_own_account(version: str, through: str) -> None:
    async with registry(two(), config("work", "home")) as gateway:
        await gateway.refresh(gateway.members)
        client = Client(gateway.endpoint(), version)
        for name, uri in (("work", PAGE), ("home", "ui://home--budget/page.html")):
            if through == "directly":
                result = await client.call(f"{name}__show")
            else:
                result = await client.call("execute_tool", name=f"{name}__show")
            link, embedded = result["content"]
            assert (link["uri"], embedded["resource"]["uri"]) == (uri, uri)
            assert embedded["resource"]["text"] == f"page of {name}"
            assert result["_meta"]["ui"]["resourceUri"] == uri
            assert await page_of(client, link["uri"]) == f"<p>page of {name}"


@ERAS
async def test_search_and_description_show_the_page_as_the_list_does(version: str) -> None:
    async with registry(two(), config("work", "home", gateway=Gateway(expose="search"))) as gateway:
        await gateway.refresh(gateway.members)
        client = Client(gateway.endpoint(), version)
        second = "ui://home--budget/page.html"
        described = await client.call("describe_tool", names=["work__show", "home__show"])
        first, other = described["structuredContent"]["tools"]
        assert uris_of(first["definition"]) == (PAGE, PAGE)
        assert uris_of(other["definition"]) == (second, second)
        texts = described["content"][0]["text"].split("**home__show**")
        assert (second in texts[0], second in texts[1], f'"{PAGE}"' in texts[1]) == (
            *(False, True),
            False,
        )
        found = await client.call("search_tools", query="show budget", detail="full")
        (results,) = found["structuredContent"]["results"]
        by_name = {tool["name"]: tool for tool in results["tools"]}
        assert uris_of(by_name["home__show"]["definition"]) == (second, second)


@ERAS
async def test_at_a_servers_own_endpoint_nothing_is_renamed(version: str) -> None:
    async with registry(two(), config("work", "home")) as gateway:
        await gateway.refresh(gateway.members)
        endpoint = gateway.server_endpoint("home")
        assert endpoint is not None
        client = Client(endpoint, version)
        shown = (await client.result("tools/list"))["tools"][0]
        assert uris_of(shown) == (PAGE, PAGE)
        assert await client.names("resources") == [PAGE]
        assert await page_of(client, PAGE) == "<p>page of home"
        link, embedded = (await client.call("show"))["content"]
        assert (link["uri"], embedded["resource"]["uri"]) == (PAGE, PAGE)


@ERAS
async def test_in_a_group_without_the_first_account_the_second_is_the_first(version: str) -> None:
    settings = config("work", "home", groups={"mine": Group(servers=("home",))})
    async with registry(two(), settings) as gateway:
        await gateway.refresh(gateway.members)
        client = Client(gateway.endpoint("mine"), version)
        assert await client.names("resources") == [PAGE]
        assert await page_of(client, PAGE) == "<p>page of home"


@ERAS
async def test_pages_that_only_a_template_or_nothing_lists_are_kept_apart_too(version: str) -> None:
    async with registry(two(lists=False), config("work", "home")) as gateway:
        await gateway.refresh(gateway.members)
        client = Client(gateway.endpoint(), version)
        assert await client.names("templates") == [
            "ui://budget/{+rest}",
            "ui://home--budget/{+rest}",
        ]
        listed = {tool["name"]: tool for tool in (await client.result("tools/list"))["tools"]}
        second = "ui://home--budget/page.html"
        assert uris_of(listed["work__show"]) == (PAGE, PAGE)
        assert uris_of(listed["home__show"]) == (second, second)
        assert await page_of(client, PAGE) == "page.html of work"
        assert await page_of(client, second) == "page.html of home"
        # A client expands the template itself.
        assert await page_of(client, "ui://home--budget/more/of.html") == "more/of.html of home"
        reference = {"type": "ref/resource", "uri": "ui://home--budget/{+rest}"}
        asked = {"ref": reference, "argument": {"name": "rest", "value": "x"}}
        done = await client.result("completion/complete", asked)
        assert done["completion"]["values"] == ["x-home"]


@ERAS
async def test_a_page_that_only_a_definition_mentions_is_its_servers(version: str) -> None:
    def unlisted(name: str) -> Server:
        server = account(name, "ui://secret/page.html", lists=False)

        @server.resource("{+anything}")
        async def any_page(anything: str) -> str:
            return f"{anything} of {name}"

        return server

    servers = {"work": unlisted("work"), "home": unlisted("home")}
    async with registry(World(servers), config("work", "home")) as gateway:
        await gateway.refresh(gateway.members)
        client = Client(gateway.endpoint(), version)
        listed = {tool["name"]: tool for tool in (await client.result("tools/list"))["tools"]}
        second = "ui://home--secret/page.html"
        assert uris_of(listed["home__show"]) == (second, second)
        assert await page_of(client, "ui://secret/page.html") == "ui://secret/page.html of work"
        assert await page_of(client, second) == "ui://secret/page.html of home"


async def test_a_legacy_subscriber_of_the_second_page_hears_of_it_and_not_of_the_first() -> None:
    async with registry(two(), config("work", "home")) as gateway:
        await gateway.refresh(gateway.members)
        client = Client(gateway.endpoint(), LEGACY)
        await client.hello()
        second = "ui://home--budget/page.html"
        await client.result("resources/subscribe", {"uri": second})
        await client.call("work__touch")
        await client.call("home__touch")
        await until(lambda: bool(client.heard))
        updates = [one["params"] for one in client.heard if "updated" in one["method"]]
        assert updates == [{"uri": second}]
        await client.result("resources/unsubscribe", {"uri": second})
        await client.call("home__touch")
        assert len([one for one in client.heard if "updated" in one["method"]]) == 1


async def test_a_modern_subscriber_of_the_second_page_hears_of_it_and_not_of_the_first() -> None:
    async with registry(two(), config("work", "home")) as gateway:
        await gateway.refresh(gateway.members)
        client = Client(gateway.endpoint(), MODERN)
        second = "ui://home--budget/page.html"
        wanted = {"notifications": {"resourceSubscriptions": [second]}}
        listening = asyncio.create_task(client.request("subscriptions/listen", wanted))
        await until(lambda: bool(client.heard))
        client.heard.clear()
        await client.call("work__touch")
        await client.call("home__touch")
        await until(lambda: bool(client.heard))
        assert [one["params"]["uri"] for one in client.heard] == [second]
        listening.cancel()
        await asyncio.wait({listening})


@ERAS
async def test_nobody_takes_the_place_of_a_second_page(version: str) -> None:
    """A server that lists the very URI that Portico made for another gets nothing of it."""
    thief = account("thief", "ui://home--budget/page.html")
    escaped = account("escaped", "ui://home%2D%2Dbudget/page.html")
    behind = World({"thief": thief, "escaped": escaped, **two().servers})
    async with registry(behind, config("thief", "escaped", "work", "home")) as gateway:
        await gateway.refresh(gateway.members)
        client = Client(gateway.endpoint(), version)
        assert await client.names("resources") == [
            "ui://thief--home--budget/page.html",
            "ui://escaped--home%2D%2Dbudget/page.html",
            PAGE,
            "ui://home--budget/page.html",
        ]
        for tool in (await client.result("tools/list"))["tools"]:
            if tool["name"].endswith("__show"):
                name = tool["name"].removesuffix("__show")
                for uri in uris_of(tool):
                    assert await page_of(client, uri) == f"<p>page of {name}"


@ERAS
@pytest.mark.parametrize(
    "page",
    [
        "ui:///page.html",
        "ui://budget",
        "ui://budget?x=1#y",
        "UI://Budget/Page.html",
        "ui://b%75dget/p%61ge.html",
        "ui://user@budget:80/page.html",
        "ui://--/page.html",
        "ui://home/page.html",
        "ui://home--/page.html",
        "ui://home--home--budget/page.html",
        f"ui://{'long' * 200}/page.html",
        f"ui://budget/{'long' * 1500}",
    ],
)
async def test_odd_pages_find_their_account(version: str, page: str) -> None:
    behind = World({name: account(name, page) for name in ("home", "work", "home--home")})
    async with registry(behind, config("work", "home", "home--home")) as gateway:
        await gateway.refresh(gateway.members)
        client = Client(gateway.endpoint(searches=False), version)
        shown = set()
        for tool in (await client.result("tools/list"))["tools"]:
            if tool["name"].endswith("__show"):
                name = tool["name"].removesuffix("__show")
                uri, same = uris_of(tool)
                assert uri == same
                shown.add(uri)
                assert await page_of(client, uri) == f"<p>page of {name}"
        assert len(shown) == 3


@ERAS
async def test_a_page_that_is_not_text_stays_as_it_is(version: str) -> None:
    odd = Server("odd", "1")
    metas: list[dict[str, Any]] = [
        {"ui": {"resourceUri": 5}, "ui/resourceUri": None},
        {"ui": ["ui://x"], "ui/resourceUri": ["ui://x"]},
        {"ui": {"resourceUri": ""}},
        {"ui": {}},
    ]
    for number, meta in enumerate(metas):
        odd.add_tool({"name": f"t{number}", "inputSchema": {"type": "object"}, "_meta": meta}, _say)
    async with registry(World({"odd": odd, **two().servers}), config("work", "odd")) as gateway:
        await gateway.refresh(gateway.members)
        client = Client(gateway.endpoint(), version)
        listed = {tool["name"]: tool for tool in (await client.result("tools/list"))["tools"]}
        assert [listed[f"odd__t{number}"]["_meta"] for number in range(len(metas))] == metas


async def _say(arguments: dict[str, Any]) -> str:
    return "said"


class Shouting:
    """A link that changes every description."""

    def __call__(self, next: Handler) -> Handler:
        return next

    def view(self, offer: Offer) -> Offer:
        items = [
            msgspec.json.encode({**msgspec.json.decode(raw), "description": "LOUD"})
            for raw in offer.listed("tools").items
        ]
        listed = Listed(items=tuple(items), keys=offer.listed("tools").keys)
        return msgspec.structs.replace(offer, lists={**offer.lists, "tools": listed})


@ERAS
async def test_a_link_that_changes_a_tool_changes_nothing_about_its_page(version: str) -> None:
    async with registry(two(), config("work", "home"), links=[Shouting()]) as gateway:
        await gateway.refresh(gateway.members)
        client = Client(gateway.endpoint(searches=False), version)
        listed = {tool["name"]: tool for tool in (await client.result("tools/list"))["tools"]}
        second = "ui://home--budget/page.html"
        assert listed["home__show"]["description"] == "LOUD"
        assert uris_of(listed["work__show"]) == (PAGE, PAGE)
        assert uris_of(listed["home__show"]) == (second, second)
        assert await page_of(client, second) == "<p>page of home"


@ERAS
async def test_behind_a_link_a_servers_own_endpoint_renames_nothing_either(version: str) -> None:
    async with registry(two(), config("work", "home"), links=[Shouting()]) as gateway:
        await gateway.refresh(gateway.members)
        endpoint = gateway.server_endpoint("home")
        assert endpoint is not None
        client = Client(endpoint, version)
        shown = (await client.result("tools/list"))["tools"][0]
        assert (shown["description"], uris_of(shown)) == ("LOUD", (PAGE, PAGE))
        assert await page_of(client, PAGE) == "<p>page of home"
