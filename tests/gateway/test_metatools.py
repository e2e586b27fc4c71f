"""The gateway's own tools: what they say of servers that cannot be searched."""

import pytest

from portico import Server
from portico.config.schema import ServerEntry as Entry
from portico.model.errors import PorticoError
from portico.search import Hit
from tests.gateway.registries import Client, Words, World, config, registry


def shop(name: str) -> Server:
    server = Server(name, "1")

    @server.tool
    async def buy(what: str) -> str:
        """Buy something."""
        return what

    return server


async def test_a_server_that_cannot_be_asked_is_told_apart_from_one_that_is_still_to_come() -> None:
    there = World({"shop": shop("shop"), "late": shop("late")}, down={"gone"})
    async with registry(there, config("shop", "late", "gone"), expose="search") as gateway:
        await gateway.refresh(["shop", "gone"])
        said = await Client(gateway.endpoint()).said("search_tools", query="buy")
    assert "(still loading: the tools of late)" in said
    assert "(unavailable: the tools of gone; see gateway_status)" in said


async def test_a_server_that_is_switched_off_is_said_to_be() -> None:
    servers = {
        "shop": Entry(name="shop", command="shop"),
        "off": Entry(name="off", command="off", enabled=False),
    }
    there = World({"shop": shop("shop")})
    async with registry(there, config(servers=servers), expose="search") as gateway:
        await gateway.refresh(["shop"])
        client = Client(gateway.endpoint())
        told = [
            await client.said("search_tools", query="buy", server="off"),
            await client.said("refresh_tools", server="off"),
            await client.said("describe_tool", name="off__buy"),
            await client.said("execute_tool", name="off__buy", arguments={}),
        ]
    assert set(told) == {"off is disabled in the config; the servers are shop (1 tool)"}


async def test_only_so_many_servers_are_named_to_who_missed_one() -> None:
    names = [f"shop-{number}" for number in range(300)]
    async with registry(World(), config(*names), expose="search") as gateway:
        said = await Client(gateway.endpoint()).said("search_tools", query="x", server="shop")
    assert said.endswith("shop-49, 250 more; gateway_status lists all")


async def test_a_search_costs_a_model_little_however_many_servers_cannot_be_asked() -> None:
    names = [f"shop-{number}" for number in range(300)]
    async with registry(World(down={*names}), config(*names), expose="search") as gateway:
        client = Client(gateway.endpoint())
        early = await client.said("search_tools", query="buy")
        await gateway.refresh(gateway.members)
        late = await client.said("search_tools", query="buy")
    assert max(len(early), len(late)) < 2_000


async def test_what_models_write_for_nothing_and_for_whole_numbers_is_understood() -> None:
    async with registry(World({"shop": shop("shop")}), config("shop"), expose="search") as gateway:
        await gateway.refresh(["shop"])
        client = Client(gateway.endpoint())
        for limit in (3, 3.0, "3", None):
            nothing = {"queries": None, "server": None, "detail": None, "limit": limit}
            assert "shop__buy" in await client.said("search_tools", query="buy", **nothing)
        assert "Buy something" in await client.said("describe_tool", name="shop__buy", names=None)
        asked = {"name": "gateway_status", "arguments": None}
        assert "isError" not in await client.result("tools/call", asked)
        assert "limit" in await client.said("search_tools", query="buy", limit="many")


async def test_a_search_that_is_not_possible_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object, **__: object) -> list[Hit]:
        raise PorticoError("the tools cannot be indexed: too odd")

    monkeypatch.setattr(Words, "search", broken)
    async with registry(World(), config(), expose="search") as gateway:
        found = await Client(gateway.endpoint()).call("search_tools", query="anything")
    assert found["isError"]
    assert found["content"][0]["text"] == "search_tools: the tools cannot be indexed: too odd"
