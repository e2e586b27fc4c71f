"""A running upstream that fails all calls is restarted, and a closing connection is not used."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest

from portico.core.model.context import Context
from portico.core.model.errors import McpError
from portico.core.model.message import Request, Response
from portico.core.model.methods import LISTEN
from portico.core.model.session import Session
from portico.core.model.version import Version
from portico.upstream.connections.backoff import BackoffLimits
from portico.upstream.connections.handshake import HandshakeLimits
from portico.upstream.connections.policy import UpstreamPolicy
from portico.upstream.connections.upstream import Upstream
from portico.upstream.wires.child_wire import Command
from portico.upstream.wires.wire import Failure
from tests.rigs.running import bad
from tests.support.backoff import until
from tests.support.clock import Clock
from tests.upstream.connections.fakes import Fake, FakeWire, Message, error, legacy, modern, result

PATIENT = BackoffLimits(failures=2, open_s=15)


@asynccontextmanager
async def upstream(mode: str, policy: UpstreamPolicy) -> AsyncIterator[tuple[Upstream, Context]]:
    session = Session(lambda _: None)
    session.version = Version.V2025_11_25
    made = Upstream(Command(tuple(bad("stdio", mode))), policy)
    try:
        yield made, Context(session=session)
    finally:
        await made.close()


def call(tool: str, id: int = 1, **arguments: object) -> Request:
    params = msgspec.json.encode({"name": tool, "arguments": arguments})
    return Request(method="tools/call", id=str(id).encode(), params=params, name=tool)


def text(response: Response) -> str:
    return str(response.decode()["result"]["content"][0]["text"])


async def test_a_child_that_fails_everybody_is_replaced(clock: Clock) -> None:
    policy = UpstreamPolicy(limits=HandshakeLimits(call_s=30), backoff=PATIENT, idle_s=None)
    async with upstream("silent", policy) as (server, context):
        await server.ready(call("pid"), context)
        first = text(await server.relay(call("pid"), context))
        for _ in range(2):
            failing = asyncio.create_task(server.relay(call("bad"), context))
            await until(lambda: any(line["busy"] for line in server.status()["connections"]))
            await clock.advance(30)
            with pytest.raises(McpError, match="did not answer"):
                await failing
        with pytest.raises(McpError, match="failed 2 times in a row"):
            await server.relay(call("pid"), context)
        await clock.advance(15)
        assert text(await server.relay(call("pid"), context)) != first


async def test_a_call_after_the_idle_time_begins_anew(clock: Clock) -> None:
    async with upstream("plain", UpstreamPolicy(idle_s=60)) as (server, context):
        await server.ready(call("pid"), context)
        seen: list[str] = []
        for number, pause_s in enumerate((50, 60, 50, 60, 60)):
            seen.append(text(await server.provide(call("pid", number), context)))
            await clock.advance(pause_s)  # the child that has rested is just being ended
        first, second, third = seen[0], seen[2], seen[4]
        assert seen == [first, first, second, second, third]
        assert len({first, second, third}) == 3


def noted(message: Message) -> list[Message]:
    if message.get("method") in ("resources/subscribe", "resources/unsubscribe"):
        return [result(message, {})]
    return legacy(message, resources={"subscribe": True})


async def test_a_modern_client_hears_of_a_resource_from_the_process_that_all_call() -> None:
    shared, tried = FakeWire(noted), FakeWire(noted)
    server = Upstream(Fake([shared, tried]), UpstreamPolicy())
    session = Session(lambda _: None)
    context = Context(session=session)
    request = Request(method="resources/subscribe", id=b"1", params=b'{"uri":"note://a"}')
    request.uri, request.version = "note://a", Version.V2026_07_28
    try:
        await server.fetch_catalog()
        # Whether it speaks the modern era as well is found out by a second conversation.
        await server.relay(request, context)
        assert "initialize" in tried.methods()
        assert "resources/subscribe" not in tried.methods()
        assert "resources/subscribe" in shared.methods()
        session.end()
        await shared.until("resources/unsubscribe")
    finally:
        await server.close()


def subscribe(uri: str) -> Request:
    return Request(
        method="resources/subscribe", id=b"1", params=msgspec.json.encode({"uri": uri}), uri=uri
    )


async def test_who_follows_what_another_is_just_refused_is_asked_for_too() -> None:
    wire = FakeWire(lambda m: [] if m.get("method") == "resources/subscribe" else noted(m))
    server = Upstream(Fake([wire]), UpstreamPolicy())
    calls: list[asyncio.Task[Response]] = []
    try:
        for _ in range(2):
            session = Session(lambda _: None)
            session.version = Version.V2025_11_25
            calls.append(
                asyncio.create_task(server.relay(subscribe("note://a"), Context(session=session)))
            )
            await wire.until("resources/subscribe")
        for number, call in enumerate(calls, 1):
            wire.deliver(error(await wire.until("resources/subscribe", number), -32002))
            assert (await call).code == -32002
        assert not server.status()["connections"][0]["subscriptions"]
    finally:
        await server.close()


async def test_starts_are_still_counted_when_their_connections_are_gone() -> None:
    wires = [FakeWire(noted) for _ in range(3)]
    server = Upstream(Fake([*wires]), UpstreamPolicy(sharing="per-client"))
    seen = []
    try:
        for number in range(3):
            session = Session(lambda _: None)
            session.version = Version.V2025_11_25
            await server.relay(subscribe("note://a"), Context(session=session))
            seen.append(server.status()["starts"])
            session.end()
            await until(wires[number].is_closed)
            seen.append(server.status()["starts"])
        assert not server.status()["connections"]
        assert seen == [1, 1, 2, 2, 3, 3]
    finally:
        await server.close()


class Broken:
    """A wire that fails with an unexpected exception."""

    def __getattr__(self, name: str) -> object:
        raise ValueError("oh no")


async def test_a_start_that_fails_in_an_unknown_way_does_not_stop_the_next() -> None:
    server = Upstream(Fake([Broken(), FakeWire(noted)]), UpstreamPolicy())
    try:
        with pytest.raises(ValueError, match="oh no"):
            await server.fetch_catalog()
        await server.fetch_catalog()
    finally:
        await server.close()


def logging(message: Message) -> list[Message]:
    if message.get("method") in ("logging/setLevel", "tools/call"):
        return [result(message, {})]
    return legacy(message, logging={})


def with_roots(level: str = "") -> Context:
    session = Session(lambda _: None)
    session.version, session.log_level = Version.V2025_11_25, level
    session.capabilities, session.client_info = {"roots": {}}, {"name": "test"}
    return Context(session=session)


async def test_a_client_whose_process_rests_makes_room_and_begins_anew_as_it_was(
    clock: Clock,
) -> None:
    wires = [FakeWire(logging) for _ in range(3)]
    first, second, third = wires
    server = Upstream(Fake([*wires]), UpstreamPolicy(max_children=1, idle_s=60))
    one, other = with_roots("error"), with_roots()
    try:
        await server.set_level(call("pid"), one)
        await server.relay(call("pid"), one)
        with pytest.raises(McpError, match="per-client process limit reached"):
            await server.relay(call("pid"), other)
        for context, wire in ((other, second), (one, third)):
            await clock.advance(60)
            assert wires[wires.index(wire) - 1].closed
            await server.relay(call("pid"), context)
        assert "logging/setLevel" in first.methods()
        assert "logging/setLevel" not in second.methods()
        assert "logging/setLevel" in third.methods()
    finally:
        await server.close()


def heard_level(wire: FakeWire) -> list[str]:
    requests = [m for m in wire.sent if m.get("method") == "logging/setLevel"]
    return [m["params"]["level"] for m in requests]


def without_roots(level: str) -> Context:
    context = with_roots(level)
    assert context.session is not None
    context.session.capabilities = {}
    return context


@pytest.mark.parametrize("client", [with_roots, without_roots])
async def test_a_server_that_replaces_another_is_told_the_levels_of_its_clients(
    client: Callable[[str], Context],
) -> None:
    before, after = FakeWire(logging), FakeWire(logging)
    first, second = (
        Upstream(Fake([before]), UpstreamPolicy()),
        Upstream(Fake([after]), UpstreamPolicy()),
    )
    context = client("error")
    try:
        await first.set_level(call("pid"), context)
        await first.relay(call("pid"), context)
        second.adopt_clients(first)
        await first.close()
        await second.relay(call("pid"), context)
        assert heard_level(before) == heard_level(after) == ["error"]
    finally:
        await second.close()


async def test_each_instance_of_a_server_is_told_the_lowest_level_of_its_clients() -> None:
    silent = FakeWire(lambda m: None if m.get("method") == "tools/call" else logging(m))
    wires = [silent, FakeWire(logging)]
    server = Upstream(Fake([*wires]), UpstreamPolicy(instances=2))
    one, other = without_roots("error"), without_roots("info")
    busy: asyncio.Task[Response] | None = None
    try:
        await server.set_level(call("pid"), one)
        await server.set_level(call("pid"), other)
        busy = asyncio.create_task(server.relay(call("pid"), one))
        await silent.until("tools/call")
        await server.relay(call("pid"), other)
        assert [heard_level(wire) for wire in wires] == [["info"], ["info"]]
    finally:
        if busy is not None:
            busy.cancel()
        await server.close()


async def test_a_server_too_busy_to_be_listened_to_is_asked_again(clock: Clock) -> None:
    wire = FakeWire(
        lambda m: [error(m, -32603)] if m.get("method") == LISTEN else modern(m, tools={}) or []
    )
    server = Upstream(Fake([wire]), UpstreamPolicy(era="modern"))
    try:
        await server.fetch_catalog()
        await wire.until(LISTEN)
        await clock.advance(60)
        await wire.until(LISTEN, times=2)
    finally:
        await server.close()


async def test_a_call_that_waits_for_a_start_is_told_when_the_upstream_is_closed() -> None:
    wire = FakeWire(lambda _: None)
    server = Upstream(Fake([wire]), UpstreamPolicy())
    waiting = asyncio.create_task(server.relay(call("pid"), with_roots()))
    await wire.until("initialize")
    await server.close()
    with pytest.raises(McpError, match="is being shut down"):
        await waiting


async def test_a_closed_upstream_begins_no_conversation() -> None:
    wires = [FakeWire(noted)]
    server = Upstream(Fake(wires), UpstreamPolicy())
    await server.close()
    with pytest.raises(McpError, match="is being shut down"):
        await server.relay(call("pid"), with_roots())
    assert len(wires) == 1


async def test_a_client_that_there_is_no_room_for_is_told_so_whatever_it_wants() -> None:
    reports: list[str] = []
    wire = FakeWire(lambda m: None if m.get("method") == "tools/call" else logging(m))
    server = Upstream(Fake([wire]), UpstreamPolicy(max_children=1), report=reports.append)
    busy = asyncio.create_task(server.relay(call("pid"), with_roots()))
    await wire.until("tools/call")
    other = with_roots()
    try:
        with pytest.raises(McpError, match="per-client process limit reached"):
            await server.set_level(call("pid"), other)
        server.on_notification(Request(method="notifications/roots/list_changed"), other)
        server.warms = True
        server.on_initialize(call("pid"), other)
        await until(lambda: bool(reports))
        assert reports == ["fake: per-client process limit reached (1)"]
    finally:
        busy.cancel()
        await server.close()


async def test_a_resource_that_is_refused_late_keeps_nobody_from_resting(clock: Clock) -> None:
    wire = FakeWire(lambda m: None if m.get("method") == "resources/subscribe" else noted(m))
    server = Upstream(Fake([wire]), UpstreamPolicy(idle_s=10))
    following = asyncio.create_task(server.relay(subscribe("note://a"), with_roots()))
    try:
        request = await wire.until("resources/subscribe")
        await clock.advance(20)  # past the time after which it would rest
        assert not wire.closed
        wire.deliver(error(request, -32002))
        assert (await following).code == -32002
        await clock.advance(20)
        assert wire.closed
    finally:
        await server.close()


async def test_nobody_rests_while_an_operator_has_the_lists_asked_for(clock: Clock) -> None:
    wire = FakeWire(lambda m: None if m.get("method") == "tools/list" else legacy(m, tools={}))
    server = Upstream(Fake([wire]), UpstreamPolicy(idle_s=10))
    refreshing = asyncio.create_task(server.refresh())
    try:
        listed = await wire.until("tools/list")
        await clock.advance(20)  # past the time after which it would rest
        wire.deliver(result(listed, {"tools": []}))
        await refreshing
        await clock.advance(20)
        assert wire.closed
    finally:
        await server.close()


@pytest.mark.parametrize("limit", [0, -5, "soon", None])
async def test_a_limit_that_is_none_is_not_taken_for_one(clock: Clock, limit: object) -> None:
    wire = FakeWire(lambda m: None if m.get("method") == "tools/call" else legacy(m, tools={}))
    server = Upstream(Fake([wire]), UpstreamPolicy())
    request = call("pid")
    request.params = msgspec.json.encode({"name": "pid", "_meta": {"portico/timeoutS": limit}})
    calling = asyncio.create_task(server.relay(request, with_roots()))
    try:
        message = await wire.until("tools/call")
        await clock.advance(1)  # an expired request would be cancelled at the server
        wire.deliver(result(message, {"content": []}))
        assert (await calling).result == b'{"content":[]}'
    finally:
        await server.close()


async def test_a_server_that_dies_as_it_is_closed_is_no_failure() -> None:
    wire = FakeWire(noted)
    server = Upstream(Fake([wire]), UpstreamPolicy())
    await server.fetch_catalog()
    await server.close()
    assert wire.receiver is not None
    wire.receiver.lost(Failure(server="fake", why="exited with code 1", kind="exited"))
    assert server.status()["connections"][0]["state"] == "disconnected"
