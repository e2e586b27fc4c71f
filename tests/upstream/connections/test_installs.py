"""A command that installs its server gets the time for it as long as it works, and its turn."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from portico.core.model.context import Context
from portico.core.model.errors import McpError, TargetError
from portico.core.model.message import Request
from portico.core.model.version import Version
from portico.upstream.connections.handshake import HandshakeLimits
from portico.upstream.connections.installs import INSTALLING, WAITING, Installs
from portico.upstream.connections.policy import UpstreamPolicy
from portico.upstream.connections.upstream import Upstream
from portico.upstream.process.install_commands import Install
from portico.upstream.process.process_work import ProcessWork
from tests.support.clock import Clock
from tests.upstream.connections.fakes import Fake, FakeWire, Message, modern, result

LOOK_S = 5.0


class Installer(FakeWire):
    """An installer that works, or not, until its server is started."""

    def __init__(self, *, works: bool = True) -> None:
        super().__init__(self._hear)
        self.is_started = False
        self._works = works
        self._ticks = 0
        self._waiting: list[Message] = []

    async def child_work(self) -> ProcessWork:
        self._ticks += 100 if self._works else 0
        return ProcessWork(frozenset({1}), self._ticks, 0)

    def start(self) -> None:
        """The server is installed: it reads what was sent so far."""
        self.is_started = True
        for message in self._waiting:
            for reply in self._hear(message):
                self.deliver(reply)

    def _hear(self, message: Message) -> Sequence[Message]:
        if not self.is_started:
            self._waiting.append(message)
            return ()
        if message.get("method") == "tools/list":
            return [result(message, {"resultType": "complete", "tools": []})]
        return list(modern(message, tools={}))


def upstream(wire: Installer, name: str = "one", installs: Installs | None = None) -> Upstream:
    limits = HandshakeLimits(install=Install(f"npx {name}"))
    policy = UpstreamPolicy(limits=limits, is_process=True, installs=installs or Installs())
    return Upstream(Fake([wire], name=name), policy)


@asynccontextmanager
async def closing(*upstreams: Upstream) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        for one in upstreams:
            one.policy.installs.over.set()
            await one.close()


async def passes(clock: Clock, seconds: float) -> None:
    """Time passes in small steps, as looks at the installer need."""
    for _ in range(int(seconds / LOOK_S)):
        await clock.advance(LOOK_S)


def state(one: Upstream) -> list[str]:
    return [connection["state"] for connection in one.status()["connections"]]


async def fetched(one: Upstream) -> str:
    """The kind of the failure to fetch the catalog; empty if there is none."""
    try:
        await one.fetch_catalog()
    except TargetError as error:
        return f"{error.kind}: {error}"
    return ""


async def outcome(one: Upstream) -> str:
    """The same, at the end of the installer."""
    found = INSTALLING
    while found.startswith(INSTALLING):
        found = await fetched(one)
    return found


async def test_an_installer_that_works_has_minutes(clock: Clock) -> None:
    wire = Installer()
    one = upstream(wire)
    async with closing(one):
        fetching = asyncio.create_task(fetched(one))
        await passes(clock, 595)
        assert state(one) == [INSTALLING]
        wire.start()
        assert (await fetching).startswith(f"{INSTALLING}: one is still being installed")
        assert await fetched(one) == ""
        assert one.is_listed


async def test_a_caller_waits_as_long_as_for_any_other_server(clock: Clock) -> None:
    one = upstream(Installer())
    async with closing(one):
        fetching = asyncio.create_task(fetched(one))
        await passes(clock, 25)
        assert not fetching.done()
        await passes(clock, 5)
        assert await fetching != ""
        assert state(one) == [INSTALLING]


async def test_an_installer_that_hangs_is_ended_long_before(clock: Clock) -> None:
    wire = Installer(works=False)
    one = upstream(wire)
    async with closing(one):
        fetching = asyncio.create_task(outcome(one))
        await passes(clock, 85)
        assert not wire.is_closed()
        await passes(clock, 20)
        assert await fetching == "timeout: one has done nothing for 90 s"
        assert wire.is_closed()


async def test_an_installer_that_never_ends_is_ended(clock: Clock) -> None:
    wire = Installer()
    one = upstream(wire)
    async with closing(one):
        fetching = asyncio.create_task(outcome(one))
        await passes(clock, 610)
        assert await fetching == "timeout: one was not ready within 600 s"
        assert wire.is_closed()


async def test_two_are_installed_at_the_same_time(clock: Clock) -> None:
    installs, wires = Installs(), [Installer() for _ in range(4)]
    ones = [upstream(wire, f"s{n}", installs) for n, wire in enumerate(wires)]
    async with closing(*ones):
        fetching = [asyncio.create_task(fetched(one)) for one in ones]
        await clock.advance(1)
        assert [state(one) for one in ones] == [[INSTALLING], [INSTALLING], [WAITING], [WAITING]]
        assert [one.starts for one in ones] == [1, 1, 0, 0]
        wires[1].start()
        assert await fetching[1] == ""
        assert [state(one) for one in ones[2:]] == [[INSTALLING], [WAITING]]
        for wire in wires:
            wire.start()
        assert await asyncio.gather(*fetching) == ["", "", "", ""]


async def test_two_servers_of_one_package_are_installed_one_after_the_other(clock: Clock) -> None:
    installs = Installs()
    order: list[str] = []

    async def install(package: str, name: str, ready: asyncio.Event) -> None:
        async with installs.turn(package):
            order.append(name)
            await ready.wait()

    events = [asyncio.Event() for _ in range(3)]
    names = [("same", "first"), ("same", "second"), ("other", "third")]
    tasks = [
        asyncio.create_task(install(*name, event))
        for name, event in zip(names, events, strict=True)
    ]
    await clock.advance(1)
    assert order == ["first", "third"]
    events[0].set()
    await tasks[0]
    await clock.advance(1)
    assert order == ["first", "third", "second"]
    for event in events:
        event.set()
    await asyncio.gather(*tasks)


async def test_one_that_gives_up_waiting_leaves_its_turn_to_the_next(clock: Clock) -> None:
    installs, wires = Installs(), [Installer() for _ in range(4)]
    ones = [upstream(wire, f"s{n}", installs) for n, wire in enumerate(wires)]
    async with closing(*ones):
        fetching = [asyncio.create_task(fetched(one)) for one in ones]
        await clock.advance(1)
        await ones[2].close()  # at once: nothing of it runs
        wires[0].start()
        assert await fetching[0] == ""
        assert state(ones[3]) == [INSTALLING]
        wires[3].start()
        assert await fetching[3] == ""
        assert "shut down" in await fetching[2]


async def test_a_server_with_a_known_catalog_needs_no_turn(clock: Clock) -> None:
    class Shelf:
        def __init__(self) -> None:
            self.kept: dict[str, Any] = {}

        def load(self, key: str) -> Any:
            return self.kept.get(key)

        def save(self, key: str, offer: Any) -> bool:
            self.kept[key] = offer
            return True

    shelf, first, again = Shelf(), Installer(), Installer()
    first.start()
    limits = HandshakeLimits(install=Install("npx one"))
    policy = UpstreamPolicy(limits=limits, is_process=True)
    one = Upstream(Fake([first]), policy, memory=shelf)
    await one.fetch_catalog()
    await one.close()
    policy.installs.hold()
    again.start()
    two = Upstream(Fake([again]), policy, memory=shelf)
    async with closing(two):
        assert await fetched(two) == ""


async def test_closing_waits_for_an_installer(clock: Clock) -> None:
    wire = Installer()
    one = upstream(wire)
    fetching = asyncio.create_task(fetched(one))
    await clock.advance(1)
    ending = asyncio.create_task(one.close())
    await passes(clock, 300)
    assert not wire.is_closed()
    wire.start()
    await ending
    assert wire.is_closed()
    await fetching


async def test_the_end_of_portico_does_not_wait_longer_than_it_may(clock: Clock) -> None:
    wire = Installer()
    one = upstream(wire)
    fetching = asyncio.create_task(fetched(one))
    await clock.advance(1)
    one.policy.installs.end_in(30)
    ending = asyncio.create_task(one.close())
    await passes(clock, 25)
    assert not wire.is_closed()
    await passes(clock, 10)
    await ending
    assert wire.is_closed()
    await fetching


@pytest.mark.parametrize("works", [True, False])
async def test_the_first_client_waits_for_an_installer(clock: Clock, works: bool) -> None:
    """There is nothing to answer it with, and it will not ask again."""
    wire = Installer(works=works)
    one = upstream(wire)
    async with closing(one):
        request = Request(method="server/discover", version=max(Version))
        readying = asyncio.create_task(one.ready(request, Context()))
        await passes(clock, 85)
        assert not readying.done()
        if works:
            await passes(clock, 300)
            wire.start()
            await readying
            assert one.is_listed
        else:
            await passes(clock, 100)
            with pytest.raises(McpError, match="has done nothing for 90 s"):
                await readying
