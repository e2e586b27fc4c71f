"""The members of a gateway for the windows in one folder: how many there are, and how long."""

import asyncio
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from portico import Server
from portico.core.config.schema import ServerEntry as Entry
from portico.core.config.schema import Timeouts
from portico.core.model.errors import McpError
from portico.edge.windows.preferences import folder_in
from portico.gateway.registry import folders as of_folders
from portico.gateway.registry.registry import Registry
from portico.upstream.wires.wire import Address, Wire
from tests.gateway.registries import MODERN, Client, Prompt, World, config, registry
from tests.gateway.test_growth import living
from tests.support.backoff import until
from tests.support.running import WAIT_S

ERAS = pytest.mark.parametrize("era", ["2025-11-25", MODERN])


@dataclass
class Places(World):
    """Servers that note the folder of each start, and may be unable to start in some."""

    starts: list[str] = field(default_factory=list)
    closed_to: set[str] = field(default_factory=set)

    def address(self, entry: Entry, heard: object) -> Address:
        return _Place(entry.name, entry.cwd or "", self, super().address(entry, heard))


@dataclass(frozen=True)
class _Place:
    name: str
    folder: str
    world: Places
    inner: Address

    def wire(self) -> Wire:
        if self.folder in self.world.closed_to:
            return World().address(Entry(name=self.name, command="x"), None).wire()
        self.world.starts.append(self.folder)
        return self.inner.wire()

    def older(self) -> None:
        return


def world() -> Places:
    """One server, with a tool that waits until it is let go."""
    server = Server("placed", "1")
    held = asyncio.Event()

    @server.tool
    async def say() -> str:
        """Say something."""
        return "something"

    @server.tool
    async def hold() -> str:
        """Wait."""
        await held.wait()
        return "held"

    @server.tool
    async def let_go() -> str:
        """End the waiting."""
        held.set()
        return "let go"

    return Places({"placed": server}, wire=Prompt)


def folders(gateway: Registry) -> list[str]:
    """The folders with processes of their own, as the status has them."""
    (server,) = gateway.status()["servers"]
    return [one["folder"] for one in server.get("folders", [])]


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unused folders are looked for very often."""
    monkeypatch.setattr(of_folders, "FOLDER_LINGER_S", 0.01)


@ERAS
async def test_a_folder_has_a_process_of_its_own_and_the_lists_of_all(
    era: str, tmp_path: Path
) -> None:
    places, home, other = world(), str(tmp_path), str(tmp_path / "other")
    async with registry(places, config("placed"), home=home, expose="all") as gateway:
        await gateway.refresh(gateway.members)
        there = gateway.folders.registry(other)
        clients = [Client(one.endpoint(), era) for one in (gateway, there)]
        assert await clients[1].names() == await clients[0].names()
        assert there.merged is gateway.merged
        assert places.starts == [home]
        for client in clients:
            assert await client.said("placed__say") == "something"
        assert places.starts == [home, other]
        assert there.merged is gateway.merged
        assert folders(gateway) == [other]


async def test_the_home_of_a_gateway_and_no_folder_are_the_gateway_itself(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    async with registry(world(), config("placed"), home=str(tmp_path)) as gateway:
        assert gateway.folders.registry("") is gateway
        assert gateway.folders.registry(str(tmp_path)) is gateway
        assert gateway.folders.registry(str(tmp_path / "link")) is gateway
        assert gateway.folders.registry(str(tmp_path / "a")) is gateway.folders.registry(
            str(tmp_path / "a/.")
        )


@pytest.mark.usefixtures("soon")
async def test_an_unused_folder_is_closed_and_one_in_use_is_not(tmp_path: Path) -> None:
    left, used = str(tmp_path / "left"), str(tmp_path / "used")
    async with registry(world(), config("placed"), expose="all") as gateway:
        gateway.folders.in_use = lambda: [used]
        await gateway.refresh(gateway.members)
        for folder in (left, used):
            assert await Client(gateway.folders.registry(folder).endpoint()).said("placed__say")
        await until(lambda: folders(gateway) == [used])
        assert await Client(gateway.folders.registry(left).endpoint()).said("placed__say")


@pytest.mark.usefixtures("soon")
async def test_a_folder_without_a_window_stays_until_its_calls_are_done(tmp_path: Path) -> None:
    places = world()
    looked = 0

    def in_use() -> tuple[str, ...]:
        nonlocal looked
        looked += 1
        return ()

    async with registry(places, config("placed"), expose="all") as gateway:
        gateway.folders.in_use = in_use
        await gateway.refresh(gateway.members)
        there = gateway.folders.registry(str(tmp_path / "there"))
        holding = asyncio.ensure_future(Client(there.endpoint()).said("placed__hold"))
        await until(lambda: looked > 5)
        assert folders(gateway) == [str(tmp_path / "there")]
        await Client(gateway.endpoint()).said("placed__let_go")
        assert await holding == "held"
        await until(lambda: not folders(gateway))


@pytest.mark.usefixtures("soon")
async def test_processes_at_home_stop_once_all_windows_are_elsewhere(tmp_path: Path) -> None:
    home, other = str(tmp_path), str(tmp_path / "other")
    entry = Entry(name="placed", command="x", timeouts=Timeouts(idle=0))
    async with registry(
        world(), config(servers={"placed": entry}), home=home, expose="all"
    ) as gateway:
        windows = [home, other]
        gateway.folders.in_use = lambda: windows
        await gateway.refresh(gateway.members)
        there = Client(gateway.folders.registry(other).endpoint())
        assert await there.said("placed__say")

        def state() -> Any:
            return gateway.status()["servers"][0]["state"]

        assert state() != "stopped"
        windows.remove(home)
        await until(lambda: state() == "stopped")
        assert folders(gateway) == [other]
        assert await Client(gateway.endpoint()).said("placed__say")


async def test_only_so_many_folders_have_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_folders, "MAX_FOLDERS", 2)
    async with registry(world(), config("placed")) as gateway:
        first = gateway.folders.registry(str(tmp_path / "1"))
        gateway.folders.registry(str(tmp_path / "2"))
        with pytest.raises(McpError, match=r"too many folders \(2\)"):
            gateway.folders.registry(str(tmp_path / "3"))
        assert gateway.folders.registry(str(tmp_path / "1")) is first


async def test_failures_in_one_folder_do_not_count_in_another(tmp_path: Path) -> None:
    places, bad, good = world(), str(tmp_path / "bad"), str(tmp_path / "good")
    places.closed_to.add(bad)
    async with registry(places, config("placed"), expose="all") as gateway:
        await gateway.refresh(gateway.members)
        clients = {
            folder: Client(gateway.folders.registry(folder).endpoint()) for folder in (bad, good)
        }
        for _ in range(5):
            assert "error" in await clients[bad].request("tools/call", {"name": "placed__say"})
            assert await clients[good].said("placed__say") == "something"


async def test_a_server_that_fails_at_home_is_listed_where_it_works(tmp_path: Path) -> None:
    places, home, good = world(), str(tmp_path / "home"), str(tmp_path / "good")
    places.closed_to.add(home)
    async with registry(places, config("placed"), home=home, expose="all") as gateway:
        there = gateway.folders.registry(good)
        await gateway.refresh(gateway.members)
        client = Client(there.endpoint())
        await until(lambda: "placed" in there.merged.namespaced_offers)
        assert "placed__say" in await client.names()
        assert "placed" not in gateway.merged.namespaced_offers


async def test_a_server_for_all_folders_is_one_member_for_all(tmp_path: Path) -> None:
    fixed = Entry(name="placed", command="x", cwd="/fixed")
    places = world()
    async with registry(places, config(servers={"placed": fixed}), expose="all") as gateway:
        there = gateway.folders.registry(str(tmp_path))
        assert there.members["placed"] is gateway.members["placed"]
        await there.refresh(["placed"])
        assert places.starts == ["/fixed"]
        assert await Client(there.endpoint()).said("placed__say")
        assert places.starts == ["/fixed"]


async def test_a_changed_config_reaches_every_folder(tmp_path: Path) -> None:
    places, other = world(), str(tmp_path)
    places.servers["new"] = places.servers["placed"]
    async with registry(places, config("placed"), expose="all") as gateway:
        await gateway.refresh(gateway.members)
        there = gateway.folders.registry(other)
        client = Client(there.endpoint())
        await client.hello()
        assert await client.said("placed__say")
        kept = there.members["placed"]
        await gateway.apply(config("placed", "new"))
        assert there.members["placed"] is kept
        assert "new__say" in await client.names()
        assert await client.said("new__say")
        assert places.starts.count(other) == 2
        await gateway.apply(config("new"))
        assert [name for name in await client.names() if name.startswith("placed")] == []
        await gateway.apply(replace_in(config("new"), cwd="/fixed"))
        assert there.members["new"] is gateway.members["new"]


def replace_in(made: Any, **keys: Any) -> Any:
    """A config whose servers have other keys."""
    servers = {name: Entry(name=name, command="x", **keys) for name in made.servers}
    return config(servers=servers)


async def test_a_folder_that_is_closed_takes_its_processes_with_it(tmp_path: Path) -> None:
    places = world()
    async with registry(places, config("placed"), expose="all") as gateway:
        await gateway.refresh(gateway.members)
        there = gateway.folders.registry(str(tmp_path))
        assert await Client(there.endpoint()).said("placed__say")
    answer = await Client(there.endpoint()).request("tools/call", {"name": "placed__say"})
    assert "shut down" in str(answer)


@pytest.mark.usefixtures("soon")
async def test_folders_that_come_and_go_leave_nothing_behind(tmp_path: Path) -> None:
    async with registry(world(), config("placed"), expose="search") as gateway:
        await gateway.refresh(gateway.members)

        async def visited(number: int) -> None:
            client = Client(gateway.folders.registry(str(tmp_path / str(number))).endpoint())
            await client.hello()
            assert await client.said("execute_tool", name="placed__say", arguments={})
            client.session.end()

        async def gone() -> Counter[str]:
            await until(lambda: not folders(gateway))
            return living()

        for number in range(3):
            await visited(number)
        few = await gone()
        for number in range(3, 20):
            await visited(number)
        await gone()
        with suppress(TimeoutError):  # the last ones are still being closed
            async with asyncio.timeout(WAIT_S):
                await until(lambda: not living() - few)
        assert not living() - few


@pytest.mark.parametrize("folder", ["", ".", "a/b", "~", "/a\0b", 7, None, ["/a"]])
def test_only_an_absolute_path_is_the_folder_of_a_window(folder: object) -> None:
    assert folder_in({"folder": folder}) == ""
    assert folder_in({"folder": "/a/b"}) == "/a/b"
