"""A server of this process as a member: called as functions, changed from anywhere."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from portico import Context, Server
from portico.core.definitions.schema import Schema, SchemaViolation
from portico.core.model.errors import PorticoError
from portico.core.model.message import Request
from portico.core.protocol.inbound import read
from portico.gateway.members.in_process_server import (
    InProcessEntry,
    InProcessServer,
    in_process_entries,
)
from tests.gateway.registries import Client, World, config, registry
from tests.support.backoff import until
from tests.support.clock import Clock
from tests.support.messages import modern


def notes() -> Server:
    server = Server("notes", "1")

    @server.tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    return server


def entries(server: Server) -> dict[str, InProcessEntry]:
    return in_process_entries({"notes": server}, config())


async def test_a_change_in_another_thread_is_told() -> None:
    server = notes()
    async with registry(World(), config(), expose="all", local=entries(server)) as gateway:
        client = Client(gateway.endpoint())
        await client.hello()
        assert await client.names() == ["notes__add"]
        more = {"name": "more", "inputSchema": {"type": "object"}}
        await asyncio.to_thread(server.add_tool, more, lambda arguments: "more")
        await until(lambda: bool(client.heard))
        assert client.heard[0]["method"] == "notifications/tools/list_changed"
        assert await client.names() == ["notes__add", "notes__more"]


@pytest.mark.parametrize("expose", ["search", "all"])
async def test_its_arguments_are_checked_once(expose: str, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[object] = []
    plain = Schema.problems

    def counted(self: Schema, instance: object, size: int | None = None) -> list[SchemaViolation]:
        checked.append(instance)
        return plain(self, instance, size)

    monkeypatch.setattr(Schema, "problems", counted)
    async with registry(World(), config(), expose=expose, local=entries(notes())) as gateway:
        client = Client(gateway.endpoint())
        given = {"a": 1, "b": 2}
        if expose == "search":
            assert await client.said("execute_tool", name="notes__add", arguments=given) == "3"
        else:
            assert await client.said("notes__add", **given) == "3"
    assert checked.count(given) == 1


async def test_it_stays_when_the_config_changes() -> None:
    async with registry(World(), config(), expose="all", local=entries(notes())) as gateway:
        await gateway.apply(config())
        assert await Client(gateway.endpoint()).said("notes__add", a=1, b=2) == "3"


def test_a_name_that_cannot_be_part_of_a_tools_name_is_refused() -> None:
    with pytest.raises(PorticoError, match="invalid member name 'a b'; use 'a-b'"):
        in_process_entries({"a b": notes()}, config())


class Base:
    """A database that may be down; it knows the state of its connection."""

    def __init__(self) -> None:
        self.is_down = False
        self.starts = 0
        self.state = "new"
        self.may_start = asyncio.Event()
        self.may_start.set()

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[str, None]:
        self.starts += 1
        self.state = "starting"
        await self.may_start.wait()
        if self.is_down:
            raise ConnectionError("no database")
        self.state = "open"
        yield "connected"
        self.state = "closed"


def lived(base: Base, leave: asyncio.Event | None = None) -> Server:
    """A server with a lifespan, and a tool that shows its value when it is let go."""
    server = Server("notes", "1", lifespan=base.connect)

    @server.tool
    async def value(context: Context) -> str:
        """Show the value."""
        if leave is not None:
            await leave.wait()
        return f"{context.lifespan}, {base.state}"

    return server


async def test_its_lifespan_starts_with_the_gateway_and_closes_with_it() -> None:
    base = Base()
    async with registry(World(), config(), expose="all", local=entries(lived(base))) as gateway:
        await gateway.refresh(gateway.members)
        assert base.state == "open"
        for endpoint in (gateway.endpoint(), gateway.endpoint()):
            assert await Client(endpoint).said("notes__value") == "connected, open"
    assert (base.state, base.starts) == ("closed", 1)


async def test_a_gateway_starts_it_in_the_background(clock: Clock) -> None:
    base = Base()
    async with registry(World(), config(), expose="all", local=entries(lived(base))) as gateway:
        gateway.start()
        await clock.advance(60)
        await until(lambda: base.state == "open")
        assert base.starts == 1


async def test_a_call_that_comes_first_starts_it_and_a_cancelled_one_does_not_stop_it() -> None:
    base = Base()
    base.may_start.clear()
    async with registry(World(), config(), expose="all", local=entries(lived(base))) as gateway:
        calls = [
            asyncio.create_task(Client(gateway.endpoint()).said("notes__value")) for _ in range(2)
        ]
        await until(lambda: base.state == "starting")
        calls[0].cancel()
        await asyncio.wait({calls[0]})
        base.may_start.set()
        assert await calls[1] == "connected, open"
        assert base.starts == 1


async def test_a_start_that_fails_is_the_members_problem_and_is_repeated_by_the_next_call() -> None:
    base = Base()
    base.is_down = True
    server, told = lived(base), list[str]()
    world = World({"other": notes()})
    async with registry(
        world, config("other"), expose="all", local=entries(server), report=told.append
    ) as gateway:
        await gateway.refresh(gateway.members)
        (problem,) = told
        assert problem.startswith("cannot start notes: ConnectionError: no database (")
        (status,) = gateway.status(["notes"])["servers"]
        assert status["error"] == problem
        client = Client(gateway.endpoint())
        assert await client.said("other__add", a=1, b=2) == "3"
        failed = await client.request("tools/call", {"name": "notes__value"})
        assert failed["error"]["message"] == problem
        assert failed["error"]["data"] == {"kind": "lifespan", "server": "notes"}
        base.is_down = False
        assert await client.said("notes__value") == "connected, open"


async def test_a_gateway_that_ends_interrupts_a_start_that_hangs() -> None:
    base = Base()
    base.may_start.clear()
    async with registry(World(), config(), expose="all", local=entries(lived(base))) as gateway:
        call = asyncio.create_task(
            Client(gateway.endpoint()).request("tools/call", {"name": "notes__value"})
        )
        await until(lambda: base.state == "starting")
    assert (await call)["error"]["message"] == "notes was closed"
    assert base.state == "starting"


async def test_a_removed_member_closes_its_lifespan_after_its_calls() -> None:
    base, leave = Base(), asyncio.Event()
    member = InProcessServer("notes", lived(base, leave))
    await member.fetch_catalog()
    request = read(json.dumps(modern("tools/call", {"name": "value"})).encode(), None, None)
    assert isinstance(request, Request)
    call = asyncio.ensure_future(member.provide(request, Context()))
    await until(lambda: member.is_busy)
    leave.set()
    await call
    assert member.is_busy is False
    await member.close()
    assert base.state == "closed"
