"""Views in front of one upstream: hidden entries cannot be called, and added ones are declared."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from portico import Answer, Context, Handler, Link, NameClash, Offer, Request, Response, Server
from portico.core.config.schema import ServerEntry
from portico.core.model.offer import KINDS
from portico.gateway.wrap_app import WrapApp, WrapOptions
from portico.upstream.connections.policy import UpstreamPolicy
from tests.gateway.registries import LEGACY, MODERN, Client, Prompt, World
from tests.library.chain.test_views import Hides, asks, shop

ERAS = pytest.mark.parametrize("version", [LEGACY, MODERN])
KNOWN = pytest.mark.parametrize("known", [True, False], ids=["known", "not known yet"])
ANY = {"type": "object"}


@asynccontextmanager
async def wrapped(
    server: Server, version: str, *links: Link, known: bool = True
) -> AsyncGenerator[tuple[WrapApp, Client], None]:
    """A `wrap` of a server in this process, and a client that has shaken hands."""
    world = World({"shop": server}, wire=Prompt)
    address = world.address(ServerEntry(name="shop", command="shop"), None)
    options = WrapOptions(address, UpstreamPolicy(), key=str, history="", cache=False, links=links)
    app = WrapApp(options, alone=False)
    if known:
        await app.upstream.fetch_catalog()
    client = Client(app.endpoint, version)
    try:
        if version == LEGACY and known:
            await client.hello()
        yield app, client
    finally:
        await app.upstream.close()


@ERAS
@KNOWN
async def test_nothing_that_a_view_hides_is_reached(version: str, known: bool) -> None:
    reached: list[str] = []
    async with wrapped(shop(reached), version, Hides(), known=known) as (_, client):
        for method, params in asks("secret"):
            assert "error" in await client.request(method, params), (method, params)
        assert reached == []
        for method, params in asks("open"):
            assert "result" in await client.request(method, params), (method, params)
        said = [await client.names(kind) for kind in KINDS]
        assert "secret" not in json.dumps(said)


class AddsPrompt:
    """Adds the first prompt of a server that has none."""

    def __call__(self, next: Handler) -> Handler:
        def handle(request: Request, context: Context) -> Answer:
            if request.method == "prompts/get" and request.name == "hello":
                result: dict[str, Any] = {"messages": []}
                if request.version.modern:
                    result["resultType"] = "complete"
                return Response(id=request.id, result=json.dumps(result).encode())
            return next(request, context)

        return handle

    def view(self, offer: Offer) -> Offer:
        return offer.adding(prompts=[{"name": "hello"}])


@ERAS
async def test_a_kind_that_a_link_adds_is_declared(version: str) -> None:
    server = Server("plain")
    server.tool(lambda: "done", name="work")
    async with wrapped(server, version, AddsPrompt()) as (app, _):
        client = Client(app.endpoint, version)
        if version == LEGACY:
            found = (await client.hello())["result"]
        else:
            found = await client.result("server/discover")
        assert "prompts" in found["capabilities"]
        assert await client.names("prompts") == ["hello"]
        assert (await client.result("prompts/get", {"name": "hello"}))["messages"] == []
        assert await client.said("work") == "done"


@ERAS
async def test_links_are_replaced_while_a_client_is_connected(version: str) -> None:
    async with wrapped(shop([]), version) as (app, client):
        assert await client.names() == ["open_add", "secret_add"]
        app.endpoint.relink([Hides()])
        assert await client.names() == ["open_add"]
        assert "error" in await client.request("tools/call", {"name": "secret_add"})
        if version == LEGACY:
            kinds = [message["method"].split("/")[1] for message in client.heard]
            assert sorted(kinds) == ["prompts", "resources", "tools"]
        client.heard.clear()
        app.endpoint.relink([Hides()])
        assert client.heard == []


class Clashes(AddsPrompt):
    def view(self, offer: Offer) -> Offer:
        return offer.adding(tools=[{"name": "open_add", "inputSchema": ANY}])


async def test_a_name_that_exists_is_rejected_with_both_named() -> None:
    async with wrapped(shop([]), LEGACY) as (app, _):
        words = "tool 'open_add' is offered by both 'shop' and the link 'Clashes'"
        with pytest.raises(NameClash, match=words):
            app.endpoint.relink([Clashes()])


class HidesGateway:
    """Hides the template of one server of a gateway that is wrapped itself."""

    def __call__(self, next: Handler) -> Handler:
        return next

    def view(self, offer: Offer) -> Offer:
        return offer.keep(templates=lambda uri: "secret" not in uri)


@ERAS
async def test_a_hidden_template_of_another_gateway_is_not_read(version: str) -> None:
    server = Server("gateway")
    for kind in ("open", "secret"):
        template = f"portico://{kind}/memo://{{name}}"
        server.resource(template, name=kind)(lambda name, kind=kind: f"{kind} {name}")
    async with wrapped(server, version, HidesGateway()) as (_, client):
        read = await client.result("resources/read", {"uri": "portico://open/memo://x"})
        assert read["contents"][0]["text"] == "open x"
        hidden = {"uri": "portico://secret/memo://x"}
        assert "error" in await client.request("resources/read", hidden)
