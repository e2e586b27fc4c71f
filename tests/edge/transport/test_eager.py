"""A handler that starts eagerly sees no difference, from its first line."""

import asyncio
import contextvars
import json
import sys
from collections.abc import Awaitable, Callable, Coroutine
from types import FrameType
from typing import Any

import anyio
import pytest
import uvloop

from portico import Server
from portico.edge.transport.eager_start import start_now
from portico.edge.transport.pipes import StdioServer
from tests.support.messages import initialize

LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [
    asyncio.new_event_loop,
    uvloop.new_event_loop,
]
PLACE = contextvars.ContextVar("place", default="nowhere")


@pytest.fixture(params=LOOPS, ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, Any]], Any]:
    def run(work: Coroutine[Any, Any, Any]) -> Any:
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(work)

    return run


async def call_over_stdio(handler: Callable[[], Awaitable[Any]]) -> dict[str, Any]:
    """Return the result of a tool over stdio that runs this handler eagerly."""

    async def it(arguments: dict[str, Any]) -> Any:
        return await handler()

    server = Server("t")
    server.add_tool({"name": "it", "inputSchema": {"type": "object"}}, it)
    lines: asyncio.Queue[bytes] = asyncio.Queue()
    client = StdioServer(server.endpoint(), lambda parts: lines.put_nowait(b"".join(parts)))
    client.received(json.dumps(initialize("2025-11-25")).encode() + b"\n")
    await lines.get()
    call = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "it"}}
    client.received(json.dumps(call).encode() + b"\n")
    result: dict[str, Any] = json.loads(await lines.get())["result"]
    return result


async def times_out() -> str:
    try:
        async with asyncio.timeout(0.01):
            await asyncio.Event().wait()
    except TimeoutError:
        return "timed out"
    return "did not"


async def groups() -> str:
    async with asyncio.TaskGroup() as group:
        one, other = (
            group.create_task(asyncio.sleep(0, "a")),
            group.create_task(asyncio.sleep(0, "b")),
        )
    return one.result() + other.result()


async def knows_its_task() -> str:
    first = asyncio.current_task()
    await asyncio.sleep(0)
    return "same" if first is not None and first is asyncio.current_task() else "other"


async def keeps_its_variables() -> str:
    PLACE.set("here")
    await asyncio.sleep(0)
    return PLACE.get()


async def uses_anyio() -> str:
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.sleep, 0)
        with anyio.move_on_after(0.01) as scope:
            await anyio.sleep_forever()
    return "moved on" if scope.cancelled_caught else "did not"


async def cancels_itself() -> str:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        task.uncancel()
        return "cancelled"
    return "went on"


@pytest.mark.parametrize(
    "handler, expected",
    [
        (times_out, "timed out"),
        (groups, "ab"),
        (knows_its_task, "same"),
        (keeps_its_variables, "here"),
        (uses_anyio, "moved on"),
        (cancels_itself, "cancelled"),
    ],
)
def test_a_handler_has_from_its_first_line_on(
    run: Callable[..., Any], handler: Callable[[], Awaitable[str]], expected: str
) -> None:
    result = run(call_over_stdio(handler))
    assert result["content"] == [{"type": "text", "text": expected}], result


def test_variables_that_a_handler_sets_stay_its_own(run: Callable[..., Any]) -> None:
    async def work() -> str:
        await call_over_stdio(keeps_its_variables)
        return PLACE.get()

    assert run(work()) == "nowhere"


def test_a_task_that_never_waits_is_done_at_once(run: Callable[..., Any]) -> None:
    async def nothing() -> int:
        return 7

    async def work() -> bool:
        task = start_now(nothing())
        return task.done() and task.result() == 7

    assert run(work())


def test_the_task_that_starts_another_stays_the_current_one(run: Callable[..., Any]) -> None:
    async def inner(seen: list[Any]) -> None:
        seen.append(asyncio.current_task())
        await asyncio.sleep(0)
        seen.append(asyncio.current_task())

    async def work() -> None:
        seen: list[Any] = []
        outer = asyncio.current_task()
        task = start_now(inner(seen))
        assert asyncio.current_task() is outer
        await task
        assert asyncio.current_task() is outer
        assert seen == [task, task]

    run(work())


def test_what_it_raises_before_it_waits_is_the_tasks(run: Callable[..., Any]) -> None:
    async def fails() -> None:
        raise ValueError("oh no")

    async def work() -> None:
        task = start_now(fails())
        with pytest.raises(ValueError, match="oh no"):
            await task

    run(work())


def test_a_started_task_can_be_cancelled_while_it_waits(run: Callable[..., Any]) -> None:
    async def work() -> None:
        task = start_now(asyncio.Event().wait())
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(work())


def test_starting_a_task_evaluates_no_type_hints() -> None:
    seen: list[str] = []

    def record(frame: FrameType, event: str, about: Any) -> None:
        seen.append(about.__name__ if event == "c_call" else frame.f_code.co_name)

    async def nothing() -> None:
        pass

    async def work() -> None:
        sys.setprofile(record)
        try:
            start_now(nothing())
        finally:
            sys.setprofile(None)

    asyncio.run(work())
    assert "nothing" in seen
    assert not {"__class_getitem__", "__getitem__", "__new__"} & set(seen), seen
