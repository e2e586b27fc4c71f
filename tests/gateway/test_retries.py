"""A server that failed is tried again in the background, ever more rarely, and when searched."""

from collections.abc import Callable

from msgspec.structs import replace

from portico import Server
from portico.core.config.schema import ServerEntry
from portico.gateway.registry.registry import Registry
from tests.gateway.registries import Client, Shelf, World, config, registry
from tests.support.clock import Clock

STEP_S = 0.5


def shop() -> Server:
    server = Server("shop", "1")

    @server.tool
    def sell(item: str) -> str:
        """Sell a thing to a customer."""
        return item

    return server


async def pass_until(clock: Clock, true: Callable[[], bool], within_s: float) -> bool:
    """Let time pass in small steps until this is true; False if it does not become so."""
    for _ in range(int(within_s / STEP_S)):
        if true():
            return True
        await clock.advance(STEP_S)
    return true()


def is_listed(gateway: Registry) -> bool:
    return "shop__sell" in gateway.names()


def status(gateway: Registry) -> dict[str, object]:
    found: dict[str, object] = gateway.status(["shop"])["servers"][0]
    return found


async def test_a_server_that_failed_once_is_listed_without_being_used(clock: Clock) -> None:
    world = World({"shop": shop()}, down={"shop"})
    async with registry(world, config("shop"), expose="all") as gateway:
        client = Client(gateway.endpoint())
        await gateway.refresh(["shop"])
        await client.hello()
        assert "shop is down" in str(status(gateway)["error"])
        world.down.clear()
        assert await pass_until(clock, lambda: is_listed(gateway), 6)
        assert status(gateway)["error"] == ""
        assert status(gateway)["retry_in_s"] is None
        await pass_until(clock, lambda: False, 5)
        changes = [one["method"] for one in client.heard if "list_changed" in one["method"]]
        assert changes == ["notifications/tools/list_changed"]


async def test_the_pauses_grow_up_to_ten_minutes(clock: Clock) -> None:
    world = World(down={"shop"})
    reports: list[str] = []
    async with registry(world, config("shop"), report=reports.append) as gateway:
        await gateway.refresh(["shop"])
        pauses = []
        for number in range(9):
            pause = status(gateway)["retry_in_s"]
            assert isinstance(pause, float)
            pauses.append(pause)
            longest = min(5.0 * 2**number, 600.0)
            assert longest / 2 - 1 <= pause <= longest, pauses
            await clock.advance(pause + 0.1)
            await pass_until(clock, lambda: status(gateway)["retry_in_s"] is not None, 5)
        assert len(reports) == 1  # the reason stays the same


async def test_a_search_tries_again_at_once(clock: Clock) -> None:
    world = World({"shop": shop()}, down={"shop"})
    async with registry(world, config("shop", "other"), expose="search") as gateway:
        client = Client(gateway.endpoint())
        await gateway.refresh(["shop"])
        await client.hello()
        for _ in range(6):  # it would be tried after minutes
            await clock.advance(700)
            await pass_until(clock, lambda: status(gateway)["retry_in_s"] is not None, 5)
        world.down.clear()
        await client.said("search_tools", query="a thing")
        assert await pass_until(clock, lambda: is_listed(gateway), 30)  # it failed just now
        assert "shop__sell" in await client.said("search_tools", query="sell a thing")


async def test_a_search_in_another_server_does_not(clock: Clock) -> None:
    world = World({"shop": shop(), "other": shop()}, down={"shop"})
    async with registry(world, config("shop", "other"), expose="search") as gateway:
        client = Client(gateway.endpoint())
        await gateway.refresh(["shop", "other"])
        await client.hello()
        before = status(gateway)["retry_in_s"]
        await client.said("search_tools", query="a thing", server="other")
        assert isinstance(before, float)
        assert status(gateway)["retry_in_s"] == before
        world.down.clear()
        await client.said("search_tools", query="a thing", server="shop")
        assert await pass_until(clock, lambda: is_listed(gateway), 2)


async def test_many_searches_start_a_broken_server_only_now_and_then(clock: Clock) -> None:
    world = World({"shop": shop()}, down={"shop"})
    async with registry(world, config("shop"), expose="search") as gateway:
        client = Client(gateway.endpoint())
        await gateway.refresh(["shop"])
        await client.hello()
        for _ in range(100):
            await client.said("search_tools", query="a thing")
            await clock.advance(0.1)
        starts = status(gateway)["starts"]
        assert isinstance(starts, int)
        assert 2 <= starts <= 10


async def test_an_incomplete_entry_is_not_tried(clock: Clock) -> None:
    world = World({"shop": shop()})
    entry = ServerEntry(name="shop", command="shop", problem="VARIABLE is not set")
    incomplete = replace(config("shop"), servers={"shop": entry})
    async with registry(world, incomplete, expose="search") as gateway:
        client = Client(gateway.endpoint())
        await gateway.refresh(["shop"])
        await client.said("search_tools", query="a thing")
        await pass_until(clock, lambda: False, 20)
        assert world.opened == []
        assert status(gateway)["retry_in_s"] is None


async def test_a_server_with_a_stored_catalog_is_tried_too(clock: Clock) -> None:
    shelf = Shelf()
    world = World({"shop": shop()})
    async with registry(world, config("shop"), memory=shelf) as gateway:
        await gateway.refresh(["shop"])
    world.down = {"shop"}
    async with registry(world, config("shop"), memory=shelf) as gateway:
        await gateway.refresh(["shop"])
        assert is_listed(gateway)
        assert status(gateway)["error"]
        world.down.clear()
        assert await pass_until(clock, lambda: not status(gateway)["error"], 6)


async def test_a_removed_server_is_not_tried_again(clock: Clock) -> None:
    world = World({"shop": shop()}, down={"shop"})
    async with registry(world, config("shop"), expose="all") as gateway:
        await gateway.refresh(["shop"])
        await gateway.apply(config())
        world.down.clear()
        await pass_until(clock, lambda: False, 20)
        assert world.opened == []
