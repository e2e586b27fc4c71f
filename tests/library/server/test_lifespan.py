"""The lifespan of a server: started once, in order, and closed in reverse order."""

import asyncio
import logging
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Literal

import anyio
import pytest

from portico import BlockingContext, Context, PorticoError, RegistrationError, Server
from portico.core.model.errors import StartError
from tests.support.backoff import until
from tests.support.clock import Clock
from tests.support.messages import MODERN, call

Lifespan = Callable[[Server], AbstractAsyncContextManager[str]]


class Diary:
    """The events of some lifespans, in order."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.tasks: dict[str, list[object]] = {}

    def lifespan(
        self, name: str, *, fails: str = "", waits: asyncio.Event | None = None
    ) -> Lifespan:
        """A lifespan that fails at its `start` or `close`, and waits before it has started."""

        @asynccontextmanager
        async def lifespan(server: Server) -> AsyncGenerator[str, None]:
            self._write("start", name)
            if fails == "start":
                raise KeyError("DATABASE_URL")
            if waits is not None:
                await waits.wait()
            try:
                yield f"{name} of {server.name}"
            finally:
                self._write("close", name)
                if fails == "close":
                    raise ValueError("still in use")

        return lifespan

    def _write(self, event: str, name: str) -> None:
        self.events.append(f"{event} {name}")
        self.tasks.setdefault(name, []).append(asyncio.current_task())


def lived(diary: Diary, name: str = "a", **options: Any) -> Server:
    """A server with a lifespan, and a tool that shows its value."""
    server = Server(name, lifespan=diary.lifespan(name, **options))

    @server.tool(name=f"value_{name}")
    async def value(context: Context) -> str:
        """Show the value."""
        return str(context.lifespan)

    return server


async def said(server: Server, tool: str, version: str = MODERN) -> str:
    text: str = (await call(server, tool, version=version))["content"][0]["text"]
    return text


@pytest.mark.parametrize("version", [MODERN, "2025-11-25"])
async def test_handlers_of_all_kinds_reach_the_value(version: str) -> None:
    server = lived(Diary())

    @server.tool
    def plain(context: BlockingContext) -> str:
        """Show it from a thread."""
        return str(context.lifespan)

    async with server.running():
        assert await said(server, "value_a", version) == "a of a"
        assert await said(server, "plain", version) == "a of a"


async def test_it_may_take_no_server_or_be_a_class() -> None:
    class Database:
        async def __aenter__(self) -> str:
            return "connected"

        async def __aexit__(self, *_: object) -> None:
            return

    server = Server("a", lifespan=Database)

    @server.tool
    async def value(context: Context) -> str:
        """Show the value."""
        return str(context.lifespan)

    async with server.running():
        assert await said(server, "value") == "connected"


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_it_may_register_tools_before_a_client_lists_them(
    era: Literal["modern", "legacy"],
) -> None:
    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncGenerator[None, None]:
        server.add_tool({"name": "late", "inputSchema": {"type": "object"}}, lambda arguments: "")
        yield
        server.remove_tool("late")

    server = Server("a", lifespan=lifespan)
    for _ in range(2):
        async with server.test_client(era=era) as client:
            assert "tools" in client.capabilities
            assert [tool.name for tool in await client.list_tools()] == ["late"]


async def test_it_runs_once_however_often_it_is_entered() -> None:
    diary = Diary()
    server = lived(diary)
    inside, leave = asyncio.Event(), asyncio.Event()

    async def other() -> str:
        async with server.running():
            inside.set()
            await leave.wait()
            return await said(server, "value_a")

    async with server.running():
        task = asyncio.create_task(other())
        await inside.wait()
    assert diary.events == ["start a"]
    leave.set()
    assert await task == "a of a"
    assert diary.events == ["start a", "close a"]
    async with server.running():
        assert diary.events == ["start a", "close a", "start a"]


async def test_it_is_entered_and_exited_in_one_task_whoever_leaves_last() -> None:
    diary = Diary()
    server = lived(diary)
    first, second = server.running(), server.running()

    async def enter_and_leave_the_second() -> None:
        await second.__aenter__()
        await first.__aexit__(None, None, None)

    await first.__aenter__()
    await asyncio.create_task(enter_and_leave_the_second())
    await second.__aexit__(None, None, None)
    assert diary.events == ["start a", "close a"]
    entered, exited = diary.tasks["a"]
    assert entered is exited


async def test_several_start_in_order_and_close_in_reverse_order() -> None:
    diary = Diary()
    server = Server.compose("all", lived(diary, "a"), Server("none"), lived(diary, "b"))
    async with server.running() as running:
        assert running is server
        assert await said(server, "value_a") == "a of a"
        assert await said(server, "value_b") == "b of b"
    assert diary.events == ["start a", "start b", "close b", "close a"]


async def test_those_before_one_that_fails_are_closed_and_the_error_names_it() -> None:
    diary = Diary()
    parts = [lived(diary, "a"), lived(diary, "b"), lived(diary, "c", fails="start")]
    server = Server.compose("all", *parts, lived(diary, "d"))
    with pytest.raises(StartError, match=r"^cannot start c: KeyError: 'DATABASE_URL'") as caught:
        async with server.running():
            pytest.fail("it must not run")
    assert "test_lifespan.py:" in str(caught.value)
    assert isinstance(caught.value.__cause__, KeyError)
    assert diary.events == ["start a", "start b", "start c", "close b", "close a"]


async def test_a_failed_start_can_be_repeated() -> None:
    diary = Diary()
    server = lived(diary, fails="start")
    for _ in range(2):
        with pytest.raises(PorticoError):
            await server.running().__aenter__()
    assert diary.events == ["start a", "start a"]


async def test_an_exit_in_a_lifespan_does_not_end_the_process() -> None:
    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncGenerator[None, None]:
        if server.name == "a":
            sys.exit("no database")
        yield

    with pytest.raises(StartError, match="cannot start a: SystemExit: no database"):
        await Server("a", lifespan=lifespan).running().__aenter__()


async def test_one_that_fails_to_close_is_reported_and_the_others_are_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    diary = Diary()
    server = Server.compose("all", lived(diary, "a"), lived(diary, "b", fails="close"))
    async with server.running():
        pass
    assert diary.events == ["start a", "start b", "close b", "close a"]
    (record,) = caplog.records
    assert record.getMessage() == "the lifespan of b failed to close"
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ValueError)


async def test_a_start_that_hangs_can_be_cancelled() -> None:
    diary = Diary()
    server = Server.compose("all", lived(diary, "a"), lived(diary, "b", waits=asyncio.Event()))

    async def enter() -> None:
        async with server.running():
            pytest.fail("it must not run")

    entering = asyncio.create_task(enter())
    await until(lambda: "start b" in diary.events)
    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering
    assert diary.events == ["start a", "start b", "close a"]


async def test_one_that_does_not_close_is_cancelled(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    closing, cancelled = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        yield
        closing.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    server = Server("a", lifespan=lifespan)

    async def serve() -> None:
        async with server.running():
            pass

    serving = asyncio.create_task(serve())
    await closing.wait()
    await clock.advance(30)
    await serving
    assert cancelled.is_set()
    assert caplog.messages == ["the lifespan of a is cancelled: it does not close"]


async def test_a_task_group_of_anyio_lives_in_it_and_its_failure_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fail = asyncio.Event()

    async def work() -> None:
        await fail.wait()
        raise OSError("connection lost")

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncGenerator[str, None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work)
            yield "working"
            tasks.cancel_scope.cancel()

    server = Server("a", lifespan=lifespan)

    @server.tool
    async def value(context: Context) -> str:
        """Show the value."""
        return str(context.lifespan)

    async with server.running():
        assert await said(server, "value") == "working"
    assert caplog.messages == []
    async with server.running():
        fail.set()
        await until(lambda: bool(caplog.messages))
        assert "the lifespan of a has ended" in await said(server, "value")
    assert caplog.messages[0] == "the lifespan of a failed while it was running"


async def test_without_a_running_one_the_error_says_what_to_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL, "portico")
    server = lived(Diary())
    hint = "the lifespan of a is not running; serve requests inside `async with server.running():`"
    assert hint in await said(server, "value_a")

    @server.tool
    def plain(context: BlockingContext) -> str:
        """Show it from a thread."""
        return str(context.lifespan)

    assert hint in await said(server, "plain")


async def test_a_server_without_one_says_how_to_add_it() -> None:
    async with Server("a").running():
        with pytest.raises(RuntimeError, match=r"create it with Server\(lifespan=\.\.\.\)"):
            _ = Context().lifespan


def test_it_is_reusable_in_another_event_loop_but_not_in_two_at_once() -> None:
    diary = Diary()
    server = lived(diary)

    async def once() -> None:
        async with server.running():
            other = asyncio.to_thread(lambda: asyncio.run(server.running().__aenter__()))
            with pytest.raises(RuntimeError, match="runs in another event loop"):
                await other

    asyncio.run(once())
    asyncio.run(once())
    assert diary.events == ["start a", "close a"] * 2


async def generator(server: Server) -> AsyncIterator[None]:
    yield


async def coroutine(server: Server) -> None:
    return


@pytest.mark.parametrize(
    ("lifespan", "what"),
    [
        (generator, "is a generator function"),
        (coroutine, "is a coroutine function"),
        ("db", "'db' is not a function"),
    ],
)
def test_a_function_that_cannot_be_one_is_rejected(lifespan: Any, what: str) -> None:
    with pytest.raises(RegistrationError, match=rf"{what}; decorate .*asynccontextmanager"):
        Server("a", lifespan=lifespan)


@pytest.mark.parametrize("returns", [None, "connected"])
async def test_a_function_that_returns_something_else_fails_at_start(returns: object) -> None:
    server = Server("a", lifespan=lambda server: returns)  # type: ignore[arg-type, return-value]
    kind = type(returns).__name__
    with pytest.raises(StartError, match=f"cannot start a: the lifespan returned {kind}, not an"):
        await server.running().__aenter__()
