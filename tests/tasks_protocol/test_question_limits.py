"""The questions of a server's own tasks: bounded, and withdrawn with the server's own."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import Raw

from portico.core.model.context import Context
from portico.core.model.errors import McpError
from portico.core.model.message import Request, Response
from portico.core.protocol.codec import encode
from portico.library.tasks.mcp.following import (
    MAX_ALL_QUESTIONS,
    MAX_QUESTIONS,
    MAX_SERVER_QUESTIONS,
    QuestionLimits,
    RemoteTask,
)
from portico.library.tasks.mcp.remote_task import FollowRunner
from portico.library.tasks.store.record import COMPLETED, FAILED, NotAccepted
from portico.library.tasks.store.store import tasks_in_memory
from portico.library.tasks.worker.worker import TaskWorker
from tests.support.task_runners import ME, comes, seen

NOTHING = Raw(b"{}")
REMOTE = RemoteTask(
    server="rig",
    id="t",
    modern=True,
    name="work",
    version="2026-07-28",
    params=NOTHING,
    capabilities=NOTHING,
    info=NOTHING,
    ttl_s=60.0,
)
Answerer = Callable[[Request], dict[str, Any]]


def question(text: str = "May I?") -> dict[str, Any]:
    form = {"type": "object", "properties": {}}
    return {"method": "elicitation/create", "params": {"message": text, "requestedSchema": form}}


def asking(*keys: str) -> dict[str, Any]:
    return {
        "taskId": "t",
        "status": "input_required",
        "pollIntervalMs": 1,
        "inputRequests": {key: question(key) for key in keys},
    }


@asynccontextmanager
async def following(answer: Answerer) -> AsyncIterator[tuple[TaskWorker, str, list[str]]]:
    """A worker that follows a task of a server with these answers, and the methods it received."""
    methods: list[str] = []

    async def relay(request: Request, context: Context) -> Response:
        methods.append(request.method)
        return Response(id=b"0", result=json.dumps(answer(request)).encode())

    worker = TaskWorker(tasks_in_memory)
    worker.register("remote", FollowRunner(lambda _: relay))
    task = await worker.submit(ME, "remote", encode(REMOTE))
    try:
        yield worker, task.id, methods
    finally:
        await worker.close()


async def test_a_task_with_too_many_questions_fails_and_its_server_is_told() -> None:
    many = [f"q{number}" for number in range(100_000)]
    async with following(lambda _: asking(*many)) as (worker, id, methods):
        ended = await seen(worker.store, id, lambda task: task.is_finished)
        assert ended.state is FAILED
        assert ended.message == (
            f"cannot pass on a question of rig: its task has more than {MAX_QUESTIONS} at once; "
            "its task was cancelled"
        )
        assert methods[-1] == "tasks/cancel"


async def test_a_server_that_asks_anew_at_each_query_leaves_no_questions_behind() -> None:
    queries = 0

    def answer(_: Request) -> dict[str, Any]:
        nonlocal queries
        queries += 1
        return asking(f"q{queries}")

    async with following(answer) as (worker, id, _):
        await comes(lambda: queries > 100)
        task = await seen(worker.store, id, lambda _: True)
        assert len(task.pending) <= 2  # a withdrawal may be under way
        assert not task.is_finished


async def test_an_answer_reaches_its_server_once() -> None:
    answered: list[Any] = []

    def answer(request: Request) -> dict[str, Any]:
        if request.method == "tasks/update":
            answered.append(request.decode()["inputResponses"])
            return {}
        if answered:
            result = {"resultType": "complete", "content": []}
            return {"taskId": "t", "status": "completed", "result": result}
        return asking("a")

    async with following(answer) as (worker, id, _):
        task = await seen(worker.store, id, lambda task: task.pending)
        await worker.store.answer(ME, id, {task.pending[0].key: b'{"action":"accept"}'})
        ended = await seen(worker.store, id, lambda task: task.is_finished)
        assert ended.state is COMPLETED
        assert answered == [{"a": {"action": "accept"}}]


@pytest.mark.parametrize("kind", ["garbage", "question"])
async def test_a_failure_that_would_come_again_ends_the_task_at_once(kind: str) -> None:
    asked: list[str] = []

    async def relay(request: Request, context: Context) -> Response:
        asked.append(request.method)
        raise McpError("rig sent a message of more than 16 MB", data={"kind": kind})

    worker = TaskWorker(tasks_in_memory)
    worker.register("remote", FollowRunner(lambda _: relay))
    task = await worker.submit(ME, "remote", encode(REMOTE))
    ended = await seen(worker.store, task.id, lambda task: task.is_finished)
    assert (ended.state, ended.message) == (FAILED, "rig sent a message of more than 16 MB")
    assert asked == ["tasks/get", "tasks/cancel"]
    await worker.close()


def test_questions_are_bounded_for_a_task_a_server_and_all_of_them() -> None:
    from contextlib import ExitStack

    limits = QuestionLimits()
    with ExitStack() as held:
        for _ in range(MAX_QUESTIONS):
            held.enter_context(limits.hold("a", "t1"))
        with pytest.raises(NotAccepted, match="its task has 64"), limits.hold("a", "t1"):
            pass
        for number in range(MAX_SERVER_QUESTIONS - MAX_QUESTIONS):
            held.enter_context(limits.hold("a", f"other{number}"))
        with pytest.raises(NotAccepted, match="a has 256"), limits.hold("a", "new"):
            pass
        for number in range(MAX_ALL_QUESTIONS - MAX_SERVER_QUESTIONS):
            held.enter_context(limits.hold(f"s{number}", f"u{number}"))
        with pytest.raises(NotAccepted, match="all servers together"), limits.hold("z", "new"):
            pass
    with limits.hold("a", "t1"):
        pass
