"""A gateway that lives long is as large as one that has just begun."""

import asyncio
import gc
from collections import Counter
from contextlib import suppress
from weakref import ref

from portico import Server
from portico.core.config.schema import ServerEntry as Entry
from portico.gateway.registry.registry import Registry
from tests.gateway.registries import MODERN, Client, World, config, registry
from tests.support.backoff import until
from tests.support.running import WAIT_S


def large() -> Server:
    server = Server("large", "1")
    for number in range(50):
        server.tool(name=f"tool_{number}")(say)
    return server


async def say() -> str:
    """Say something."""
    return "something"


async def reload(gateway: Registry, number: int) -> None:
    """Go on with another config, in which the server is another one."""
    entry = Entry(name="large", command="large", max_in_flight=10 + number)
    await gateway.apply(config(servers={"large": entry}))


def living() -> Counter[str]:
    """How many objects of ours there are, by type; those that nobody can reach are none."""
    gc.collect()
    names = (f"{type(one)!r}" for one in gc.get_objects())  # some types have no module at all
    return Counter(name for name in names if name.startswith("<class 'portico."))


async def test_so_many_reloads_leave_no_more_behind_than_a_few() -> None:
    async with registry(World({"large": large()}), config("large"), expose="search") as gateway:
        await gateway.refresh(gateway.members)
        clients = [Client(gateway.endpoint()), Client(gateway.endpoint(), MODERN)]
        await clients[0].hello()

        async def used(times: range) -> None:
            for number in times:
                await reload(gateway, number)
                for client in clients:
                    assert await client.said("execute_tool", name="large__tool_7") == "something"
                    assert "tool_7" in await client.said("search_tools", query="tool 7")

        await used(range(3))
        few = living()
        await used(range(3, 30))
        with suppress(TimeoutError):  # the last ones are still being let go
            async with asyncio.timeout(WAIT_S):
                await until(lambda: not living() - few)

        assert not living() - few


async def test_the_catalog_of_a_server_that_is_replaced_is_gone_with_it() -> None:
    async with registry(World({"large": large()}), config("large"), expose="all") as gateway:
        await gateway.refresh(gateway.members)
        before = ref(gateway.members["large"].provider.offered())
        gc.disable()  # which would come by after ten reloads, and each may be some megabytes
        try:
            await reload(gateway, 1)
            await until(lambda: before() is None)
        finally:
            gc.enable()
        assert before() is None
