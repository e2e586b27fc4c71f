"""The time that a call has once it is a task: the timeout of calls does not end it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from portico import Context, Server
from portico.core.model.context import LOCAL
from portico.core.model.errors import McpError
from portico.core.model.message import Request, Response
from portico.core.model.session import Session
from portico.core.model.version import Version
from portico.library.tasks.mcp.task_call import StoredCallControl
from portico.library.tasks.store.record import STORE_FILE
from portico.library.tasks.store.store import tasks_in_folder
from portico.upstream.connections.handshake import HandshakeLimits
from portico.upstream.connections.policy import UpstreamPolicy
from portico.upstream.connections.upstream import Upstream
from portico.upstream.wires.wire import Outgoing
from tests.serve.gateway import Gateway, command, written
from tests.support.clock import Clock
from tests.support.messages import modern, request
from tests.tasks_protocol.doors import ANSWERS, ERAS, tasks_server
from tests.tasks_protocol.follower import ABLE, FollowingWeb
from tests.upstream.connections.fakes import Fake, FakeWire, Message, Script, legacy, result

CALL_S = 30.0
DAY_S = 24 * 3600.0
WAITING_S = 2.5
"""The duration of a call, in real time; the timeout of calls is 1 s there."""


class Task:
    """A task, as a call sees it."""

    id = "ptk_x"
    is_cancelled = False

    async def message(self, text: str) -> None:
        """Ignore the status."""

    async def supplied_result(self) -> Any:
        """Return nothing."""


class Becoming(StoredCallControl):
    """A call that can become a task."""

    def __init__(self) -> None:
        self.task = None


def conversation(message: Message) -> list[Message] | None:
    """A server that never answers a call, unless the wire is told to."""
    return None if message.get("method") == "tools/call" else legacy(message, tools={})


class QuickWire(FakeWire):
    """A wire on which calls take the direct path."""

    def send_now(self, message: Outgoing) -> bool:
        self.sending = asyncio.ensure_future(self.send(message))
        return True


class Calling:
    """One call at a silent server."""

    def __init__(self, server: Upstream, wire: FakeWire, meta: dict[str, Any]) -> None:
        self.server = server
        self.wire = wire
        session = Session(lambda _: None)
        session.version = Version.V2025_11_25
        self.context = Context(session=session)
        params = {"name": "x", "arguments": {}, "_meta": meta}
        self.request = Request(
            method="tools/call", id=b"1", params=msgspec.json.encode(params), name="x"
        )

    async def begin(self) -> "asyncio.Task[Response]":
        """Send the call, in the way that a client's call takes."""

        async def send() -> Response:
            return await self.server.provide(self.request, self.context)

        running = asyncio.create_task(send())
        await self.wire.until("tools/call")
        return running


@asynccontextmanager
async def calling(
    make: Callable[[Script], FakeWire] = FakeWire, meta: dict[str, Any] | None = None
) -> AsyncIterator[Calling]:
    wire = make(conversation)
    policy = UpstreamPolicy(limits=HandshakeLimits(call_s=CALL_S), idle_s=None, era="legacy")
    server = Upstream(Fake([wire]), policy)
    try:
        await server.fetch_catalog()
        yield Calling(server, wire, meta or {})
    finally:
        await server.close()


@pytest.mark.parametrize("wire", [FakeWire, QuickWire])
async def test_a_call_that_becomes_a_task_outlives_the_timeout_of_calls(
    clock: Clock, wire: Callable[[Script], FakeWire]
) -> None:
    async with calling(wire) as call:
        call.context.task_control = task_control = Becoming()
        running = await call.begin()
        await clock.advance(CALL_S / 2)
        task_control.task = Task()
        for _ in range(20):
            await clock.advance(3600)
        assert not running.done()
        sent = next(one for one in call.wire.sent if one.get("method") == "tools/call")
        call.wire.deliver(result(sent, {"content": []}))
        assert not (await running).error


@pytest.mark.parametrize("is_stored", [True, False])
async def test_a_task_whose_server_never_answers_fails_after_a_day(
    clock: Clock, is_stored: bool
) -> None:
    async with calling() as call:
        call.context.task_control = task_control = (
            StoredCallControl(Task()) if is_stored else Becoming()
        )
        running = await call.begin()
        task_control.task = Task()
        await clock.advance(CALL_S)
        await clock.advance(DAY_S - CALL_S - 60)
        assert not running.done()
        await clock.advance(60)
        why = "fake did not answer tools/call within 24 hours, the limit of a task"
        assert why in await failure_of(running)
        await call.wire.until("notifications/cancelled")


async def test_a_call_that_did_not_become_a_task_times_out(clock: Clock) -> None:
    async with calling() as call:
        call.context.task_control = Becoming()
        running = await call.begin()
        await clock.advance(CALL_S)
        assert "did not answer tools/call within 30 s" in await failure_of(running)


async def test_a_timeout_that_the_client_has_set_ends_a_task(clock: Clock) -> None:
    async with calling(meta={"portico/timeoutS": 50}) as call:
        call.context.task_control = StoredCallControl(Task())
        running = await call.begin()
        await clock.advance(50)
        assert "did not answer tools/call within 50 s" in await failure_of(running)


async def test_a_task_that_is_cancelled_cancels_its_call_at_the_server(clock: Clock) -> None:
    async with calling() as call:
        call.context.task_control = StoredCallControl(Task())
        running = await call.begin()
        await clock.advance(CALL_S)
        running.cancel()
        await call.wire.until("notifications/cancelled")


async def failure_of(running: "asyncio.Task[Response]") -> str:
    """The message of the error that a call ends with, in whichever way it does."""
    try:
        response = await running
    except McpError as error:
        return error.message
    return str(response.decode()["error"]["message"])


async def test_a_handler_that_begins_a_task_outlives_the_timeout_of_calls(clock: Clock) -> None:
    server = Server("s", "1", call_timeout_s=CALL_S)
    begun, go_on = asyncio.Event(), asyncio.Event()

    @server.tool(task="manual")
    async def work(context: Context, is_task: bool) -> str:
        if is_task:
            await context.begin_task()
        begun.set()
        await go_on.wait()
        return "done"

    async def call(is_task: bool) -> dict[str, Any]:
        params = {"name": "work", "arguments": {"is_task": is_task}}
        made: dict[str, Any] = (await server.handle(modern("tools/call", params, ABLE))).decode()
        found: dict[str, Any] = made["result"]
        return found

    async with server.running():
        plain = asyncio.create_task(call(is_task=False))
        await begun.wait()
        await clock.advance(CALL_S)
        assert (await plain)["isError"] is True
        task = await call(is_task=True)
        await clock.advance(CALL_S)
        go_on.set()
        about = request("tasks/result", {"taskId": task["taskId"]})
        ended = await server.handle(about, Context(version="2025-11-25"))
        assert ended.decode()["result"]["content"][0]["text"] == "done"


@contextmanager
def gateway(folder: Path, server: str) -> Iterator[Gateway]:
    entry = command(tasks_server(), era=server, timeouts={"call": 1})
    tables: dict[str, Any] = {"gateway": {"expose": "all", "sync_budget_s": 0.3}}
    tables["tasks"] = {"lease_s": 1}
    config = written(folder / "portico.toml", {"rig": entry}, **tables)
    with Gateway(folder / "home", config) as ready:
        yield ready


@contextmanager
def connected(ready: Gateway, era: str) -> Iterator[FollowingWeb]:
    with FollowingWeb(ready.port, answers=ANSWERS, modern=era == "modern") as client:
        client.prefix = "rig__"
        if not client.modern:
            client.hello({"elicitation": {}})
        yield client


@pytest.mark.slow
@pytest.mark.parametrize("server", ERAS)
async def test_a_promoted_and_a_resumed_call_outlive_the_timeout_of_calls(
    tmp_path: Path, server: str
) -> None:
    said = f"waited {WAITING_S} s"
    with gateway(tmp_path, server) as ready, connected(ready, "modern") as client:
        with connected(ready, "legacy") as plain:
            given = plain.call_of("wait", {"seconds": WAITING_S})
            first = plain.fetch("tools/call", given)["result"]["structuredContent"]["task_id"]
        lost = client.begin("wait", seconds=WAITING_S)
        client.fetch("tasks/cancel", {"taskId": lost})
        client.reached(lost, "cancelled")
        assert client.outcome(first)["result"]["content"][0]["text"] == said
        state = tmp_path / "home" / "state"
        assert (state / STORE_FILE).exists()
        store = tasks_in_folder(str(state))
        resumed = await store.resume(LOCAL, lost)
        await store.close()
        assert resumed is not None
        assert client.outcome(resumed.id)["result"]["content"][0]["text"] == said
