"""The gateway's own tools: what they say of servers that cannot be searched."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator

import pytest

from portico import Server
from portico.core.config.schema import ServerEntry as Entry
from portico.core.model.errors import PorticoError
from portico.gateway.endpoints import metatools
from portico.gateway.registry.registry import Registry
from portico.search import Hit
from portico.upstream.wires.memory_wire import MemoryWire
from portico.upstream.wires.wire import Receiver
from tests.gateway.registries import LEGACY, MODERN, Client, Words, World, config, registry
from tests.support.backoff import until
from tests.support.told import untold


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
    assert "still loading: the tools of late; search again soon" in said
    assert "unavailable: the tools of gone; see gateway_status" in said


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


class Slow(MemoryWire):
    """A wire to a server that starts when the test allows it."""

    started: asyncio.Event

    async def open(self, receiver: Receiver) -> None:
        await self.started.wait()
        await super().open(receiver)


@contextlib.asynccontextmanager
async def starting(*names: str, down: str = "") -> AsyncGenerator[Registry, None]:
    """A gateway whose servers are being listed for the first time."""
    Slow.started = asyncio.Event()
    there = World({name: shop(name) for name in names}, down={down}, wire=Slow)
    async with registry(there, config(*names), expose="search") as gateway:
        gateway.start_refresh()
        members = gateway.members.values()
        await until(lambda: all(member.refreshing or member.problem for member in members))
        yield gateway
        Slow.started.set()


@pytest.mark.parametrize("version", [LEGACY, MODERN])
async def test_a_search_waits_for_servers_that_are_being_started(version: str) -> None:
    async with starting("shop", "late") as gateway:
        client = Client(gateway.endpoint(), version)
        searching = asyncio.ensure_future(client.call("search_tools", query="buy"))
        await asyncio.sleep(0.05)
        assert not searching.done()
        Slow.started.set()
        found = await searching
    names = [tool["name"] for tool in found["structuredContent"]["results"][0]["tools"]]
    assert sorted(names) == ["late__buy", "shop__buy"]
    assert "notes" not in found["structuredContent"]


async def test_a_search_waits_once_for_a_server_that_does_not_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metatools, "FIRST_SEARCH_TIMEOUT_S", 0.05)
    async with starting("shop") as gateway:
        client = Client(gateway.endpoint())
        first = await client.call("search_tools", query="buy")
        monkeypatch.setattr(metatools, "FIRST_SEARCH_TIMEOUT_S", 3600.0)
        assert await client.call("search_tools", query="buy") == first
    told = first["structuredContent"]
    assert told["results"] == [{"query": "buy", "tools": [], "note": "nothing found for 'buy'"}]
    loading = "still loading: the tools of shop; search again soon"
    assert told["notes"] == [loading, "the servers are shop"]
    assert untold(first) == []


async def test_a_search_waits_for_no_server_that_failed_or_is_not_being_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metatools, "FIRST_SEARCH_TIMEOUT_S", 3600.0)
    async with starting("shop", "gone", down="gone") as gateway:
        client = Client(gateway.endpoint())
        await gateway.refresh(["gone"])
        # Only `gone` is searched; `shop` is still being started.
        assert "unavailable" in await client.said("search_tools", query="buy", server="gone")
    async with registry(World({"shop": shop("shop")}), config("shop"), expose="search") as gateway:
        said = await Client(gateway.endpoint()).said("search_tools", query="buy")
        assert "still loading: the tools of shop" in said


async def test_a_search_that_is_cancelled_while_it_waits_leaves_the_server_starting() -> None:
    async with starting("shop") as gateway:
        client = Client(gateway.endpoint())
        searching = asyncio.ensure_future(client.call("search_tools", query="buy"))
        await asyncio.sleep(0.05)
        searching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await searching
        Slow.started.set()
        assert "shop__buy" in await client.said("search_tools", query="buy")


async def test_the_state_of_26_servers_costs_a_model_little() -> None:
    names = [f"server-number-{number}" for number in range(26)]
    there = World({name: shop(name) for name in names}, down={names[7]})
    async with registry(there, config(*names), expose="search") as gateway:
        await gateway.refresh(gateway.members)
        client = Client(gateway.endpoint())
        for tool in ("gateway_status", "refresh_tools"):
            told = (await client.call(tool))["structuredContent"]
            assert "server-number-0: idle, 1 tool" in told["servers"]
            assert len(json.dumps(told)) < 1_200
        (whole,) = (await client.call("gateway_status", server=names[0], detail="full"))[
            "structuredContent"
        ]["servers"]
    assert (whole["starts"], whole["lists"]) == (1, {"tools": 1})


async def test_no_servers_and_hidden_characters_are_told_in_both_forms() -> None:
    odd = Server("odd", "1")
    odd.add_tool({"name": "a\u200bb", "inputSchema": {"type": "object"}}, lambda given: "")
    async with registry(World({"odd": odd}), config("odd"), expose="search") as gateway:
        await gateway.refresh(gateway.members)
        client = Client(gateway.endpoint())
        found = await client.call("search_tools", query="a b")
        assert (
            "hidden characters" in found["structuredContent"]["results"][0]["tools"][0]["warning"]
        )
        assert untold(found) == []
    async with registry(World(), config(), expose="search") as gateway:
        told = await Client(gateway.endpoint()).call("gateway_status")
    assert told["structuredContent"]["notes"] == ["no servers are configured"]
    assert untold(told) == []
