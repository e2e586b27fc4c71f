"""What a gateway offers, whoever of its servers answers: nothing lost, nothing left behind."""

import asyncio
import threading
from typing import Any
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from portico import Server
from portico.core.model.offer import Offer
from tests.gateway.registries import Client, Shelf, World, config, registry
from tests.support.clock import Clock, MovableLoop

_NAMES = ("alpha", "beta", "gamma")
_TOOLS = st.sets(st.sampled_from(["one", "two", "three", "a.b", "a_b"]), max_size=4)
_STEPS = st.lists(
    st.tuples(
        st.sets(st.sampled_from(_NAMES)),  # who is in the config
        st.sets(st.sampled_from(_NAMES)),  # who can be reached
        st.fixed_dictionaries(dict.fromkeys(_NAMES, _TOOLS)),  # what each has
    ),
    min_size=1,
    max_size=5,
)


def offering(name: str, tools: Any) -> Server:
    """A server with these tools."""
    server = Server(name, "1", capabilities=["tools"])
    definitions = [{"name": tool, "inputSchema": {"type": "object"}} for tool in sorted(tools)]
    if definitions:
        server.load_tools(definitions)
    for tool in tools:
        server.handler(tool)(lambda arguments, context, tool=tool: f"{name}:{tool}")
    return server


@given(_STEPS)
@settings(max_examples=60)
def test_each_server_keeps_what_it_said_last_until_it_leaves_the_config(
    steps: list[tuple[set[str], set[str], dict[str, set[str]]]],
) -> None:
    async def live() -> None:
        world, shelf = World(), Shelf()
        known: dict[str, set[str]] = {}
        async with registry(world, config(), memory=shelf) as gateway:
            for there, reachable, tools in steps:
                world.servers = {name: offering(name, tools[name]) for name in _NAMES}
                world.down = set(_NAMES) - reachable
                await gateway.apply(config(*sorted(there)))
                # What was asked before is asked anew, over a new connection.
                await Clock().advance(300)
                await gateway.refresh(there)
                known |= {name: tools[name] for name in there & reachable}
                offered = {
                    namespaced.server: set(namespaced.tools)
                    for namespaced in gateway.merged.namespaced_offers.values()
                }
                assert offered == {name: known[name] for name in there if name in known}
                assert set(gateway.pending(sorted(there))) == there - known.keys()

    with (
        mock.patch("portico.upstream.connections.catalog_views.REFRESH_S", 0.0),
        asyncio.Runner(loop_factory=MovableLoop) as runner,
    ):
        runner.run(live())


async def test_a_stored_catalog_is_served_before_any_server_runs() -> None:
    world = World({"alpha": offering("alpha", ["one"])})
    shelf = Shelf()
    async with registry(world, config("alpha"), memory=shelf) as first:
        await first.refresh(["alpha"])
    world.opened.clear()
    world.down = {"alpha"}
    async with registry(world, config("alpha"), memory=shelf, expose="all") as second:
        client = Client(second.endpoint())
        await client.hello()
        assert await client.names() == ["alpha__one"]
        assert world.opened == []
        answer = await client.request("tools/call", {"name": "alpha__one", "arguments": {}})
        assert answer["error"]["data"]["server"] == "alpha"
        assert "alpha is down" in answer["error"]["message"]


async def test_the_same_server_under_two_names_is_two_accounts() -> None:
    world = World({name: offering(name, [name]) for name in ("work", "home")})
    shelf = Shelf()
    async with registry(world, config("work", "home"), memory=shelf) as gateway:
        await gateway.refresh(["work", "home"])
        shown = sorted(gateway.merged.listed("tools").keys)
        assert shown == ["home__home", "work__work"]
    assert len(shelf.kept) >= 2


async def test_who_asks_again_while_lists_are_being_kept_hears_of_what_is_new() -> None:
    world, shelf = World({"alpha": offering("alpha", ["one"])}), Shelf()
    keeping, go_on = threading.Event(), threading.Event()
    save = shelf.save

    def slowly(key: str, facts: Offer) -> bool:
        keeping.set()
        go_on.wait(10)
        return save(key, facts)

    shelf.save = slowly  # type: ignore[method-assign]
    with mock.patch("portico.upstream.connections.catalog_views.REFRESH_S", 0.0):
        async with registry(world, config("alpha"), memory=shelf) as gateway:
            first = asyncio.create_task(gateway.refresh(["alpha"]))
            await asyncio.to_thread(keeping.wait, 10)
            world.servers["alpha"].load_tools([{"name": "two", "inputSchema": {"type": "object"}}])
            second = asyncio.create_task(gateway.refresh(["alpha"]))
            await asyncio.sleep(0)
            go_on.set()
            await asyncio.gather(first, second)
            assert set(gateway.merged.namespaced_offers["alpha"].tools) == {"one", "two"}
