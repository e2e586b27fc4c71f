"""A changed config file is taken over while calls run; a broken one changes nothing."""

import asyncio
import gc
from pathlib import Path
from typing import Any
from weakref import ref

import pytest

from portico import Server
from portico.core.config.schema import Config, Gateway, Group
from portico.core.config.schema import ServerEntry as Entry
from portico.core.model.errors import PorticoError
from portico.gateway.serve.reload import ConfigWatcher
from portico.upstream.wires.memory_wire import MemoryWire
from tests.gateway.registries import LEGACY, MODERN, Client, World, config, registry
from tests.support.backoff import until


def speaking(name: str) -> Server:
    server = Server(name, "1")

    @server.tool
    async def hold() -> str:
        """Wait until it is let go."""
        await LET_GO.wait()
        return name

    @server.tool
    async def say() -> str:
        """Say who it is."""
        return name

    return server


LET_GO = asyncio.Event()


async def test_servers_come_and_go_and_what_runs_is_not_dropped() -> None:
    LET_GO.clear()
    world = World({name: speaking(name) for name in ("one", "two", "three")})
    async with registry(world, config("one", "two"), expose="all") as gateway:
        await gateway.refresh(gateway.members)
        client = Client(gateway.endpoint())
        await client.hello()
        kept = gateway.members["one"]
        held = asyncio.create_task(client.said("two__hold"))
        await until(lambda: gateway.members["two"].provider.is_busy)
        await gateway.apply(config("one", "three"))
        assert gateway.members["one"] is kept
        assert await client.names() == ["one__hold", "one__say", "three__hold", "three__say"]
        assert (await client.request("tools/call", {"name": "two__say"}))["error"]
        LET_GO.set()
        assert await held == "two"


async def test_a_server_that_is_leaving_when_the_gateway_ends_leaves_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leaving, left = asyncio.Event(), asyncio.Event()
    close = MemoryWire.close

    async def slowly(wire: MemoryWire) -> None:
        leaving.set()
        await asyncio.sleep(0.05)
        await close(wire)
        left.set()

    monkeypatch.setattr(MemoryWire, "close", slowly)
    async with registry(World({"one": speaking("one")}), config("one"), expose="all") as gateway:
        await gateway.refresh(gateway.members)
        await gateway.apply(config())
        await leaving.wait()
    assert left.is_set()


async def test_clients_are_told_of_what_is_newly_pinned_or_grouped() -> None:
    world = World({name: speaking(name) for name in ("one", "two")})
    groups = {"some": Group(servers=("one",))}
    async with registry(world, config("one", "two", groups=groups), expose="search") as gateway:
        await gateway.refresh(gateway.members)
        everyone, some = Client(gateway.endpoint()), Client(gateway.endpoint("some"))
        for client in (everyone, some):
            await client.hello()
            client.heard.clear()
        await gateway.apply(
            config("one", "two", gateway=Gateway(pinned=("one__say",)), groups=groups)
        )
        await until(lambda: bool(everyone.heard))
        assert [told["method"] for told in everyone.heard] == ["notifications/tools/list_changed"]
        assert (await everyone.names())[-1] == "one__say"
        some.heard.clear()
        await gateway.apply(config("one", "two", groups={"some": Group(servers=("one", "two"))}))
        await until(lambda: bool(some.heard))
        assert "two" in await some.said("gateway_status")


async def test_other_words_for_a_server_are_taken_over_without_starting_it_again() -> None:
    world = World({"one": speaking("one")})
    async with registry(world, config("one"), expose="search") as gateway:
        await gateway.refresh(gateway.members)
        client = Client(gateway.endpoint())
        await client.hello()
        assert "one__say" not in await client.said("search_tools", query="zebra")
        words = Entry(name="one", command="one", description="Speaks up", tags=("zebra",))
        await gateway.apply(config(servers={"one": words}))
        assert "one__say" in await client.said("search_tools", query="zebra")
        await until(lambda: "tools/list_changed" in str(client.heard))
        assert "Speaks up" in str(await client.result("tools/list"))
        assert world.opened == ["one"]


@pytest.fixture
def told() -> list[str]:
    return []


async def test_what_is_pinned_and_no_tool_is_told_of(told: list[str]) -> None:
    world = World({"one": speaking("one")}, down={"two"})
    pinned = Gateway(pinned=("one__say", "one__hodl", "two__say"))
    async with registry(world, config("one", "two", gateway=pinned), report=told.append) as gateway:
        await gateway.refresh(gateway.members)
    assert told[1:] == ["gateway.pinned: one has no tool 'one__hodl'; did you mean one__hold?"]


async def test_a_broken_file_is_reported_and_the_old_config_stays(
    tmp_path: Path, told: list[str]
) -> None:
    path = tmp_path / "portico.toml"
    path.write_text("")
    applied: asyncio.Queue[str] = asyncio.Queue()

    def read(path: str) -> Config:
        text = Path(path).read_text()
        if "broken" in text:
            raise PorticoError("line 1 is broken")
        return config(text)

    async def apply(config: Config) -> None:
        await applied.put(next(iter(config.servers)))

    watched = ConfigWatcher(str(path), read, apply, told.append, interval_s=0.01)
    watched.start()
    try:
        path.write_text("broken")
        await until(lambda: bool(told))
        assert "keeping the previous one" in told[0]
        assert "line 1 is broken" in told[0]
        assert applied.empty()
        draft = tmp_path / "draft"
        draft.write_text("good")
        draft.rename(path)  # as editors do
        assert await asyncio.wait_for(applied.get(), 10) == "good"
        path.unlink()
        await until(lambda: "was deleted" in told[-1])
        path.write_text("back")
        assert await asyncio.wait_for(applied.get(), 10) == "back"
    finally:
        await watched.close()


async def one_note() -> str:
    return "a"


async def test_of_a_server_that_is_replaced_nothing_is_kept_with_clients_that_stay() -> None:
    one = speaking("one")
    one.resource("note://a")(one_note)
    async with registry(World({"one": one}), config("one"), expose="all") as gateway:
        await gateway.refresh(gateway.members)
        client = Client(gateway.endpoint())
        await client.hello()
        await client.said("one__say")
        await client.result("resources/subscribe", {"uri": "note://a"})
        before = ref(gateway.members["one"].provider)
        changed = Entry(name="one", command="one", max_in_flight=9)
        await gateway.apply(config(servers={"one": changed}))
        assert await client.said("one__say") == "one"

        def is_gone() -> bool:
            gc.collect()
            return before() is None

        await until(is_gone)


async def test_starts_are_not_forgotten_when_an_entry_changes() -> None:
    async with registry(World({"notes": Server("notes", "1")}), config("notes")) as gateway:
        await gateway.refresh(gateway.members)
        before = gateway.status()["servers"][0]["starts"]
        changed = Entry(name="notes", command="notes", max_in_flight=9)
        await gateway.apply(config(servers={"notes": changed}))
        assert gateway.status()["servers"][0]["starts"] > before > 0


async def followed(client: Client, uri: str) -> "asyncio.Task[Any]":
    """Have a client follow a resource, as its era does; what ends with its listening."""
    if client.version == LEGACY:
        await client.hello()
        return asyncio.create_task(client.result("resources/subscribe", {"uri": uri}))
    wanted = {"notifications": {"resourceSubscriptions": [uri]}}
    return asyncio.create_task(client.request("subscriptions/listen", wanted))


@pytest.mark.parametrize("version", [LEGACY, MODERN])
async def test_who_follows_a_resource_hears_of_it_from_the_server_that_takes_its_place(
    version: str,
) -> None:
    notes = Server("notes", "1")

    @notes.resource("note://a")
    async def a() -> str:
        return "a"

    def follows() -> bool:
        lines = gateway.members["notes"].provider.status()["connections"]
        return any(line["subscriptions"] for line in lines)

    async with registry(World({"notes": notes}), config("notes")) as gateway:
        await gateway.refresh(gateway.members)
        client = Client(gateway.endpoint(), version)
        listening = await followed(client, "note://a")
        await until(follows)
        changed = Entry(name="notes", command="notes", max_in_flight=9)
        await gateway.apply(config(servers={"notes": changed}))
        await until(follows)
        notes.resource_updated("note://a")
        await until(lambda: "notifications/resources/updated" in str(client.heard))
        listening.cancel()
