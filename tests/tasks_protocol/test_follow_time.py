"""A server's task is followed for its ttl, whatever the wall clock shows meanwhile."""

import json
from collections.abc import Callable

import pytest
from msgspec import Raw

from portico.core.model.context import Context
from portico.core.model.message import Request, Response
from portico.core.protocol.codec import encode
from portico.library.tasks.mcp.following import RemoteTask
from portico.library.tasks.mcp.remote_task import FollowRunner
from portico.library.tasks.store.record import (
    COMPLETED,
    FAILED,
    RUNNING,
    TaskRecord,
    agent_principal,
)
from portico.library.tasks.store.store import tasks_in_memory
from portico.library.tasks.worker.work import ORPHANED
from portico.library.tasks.worker.worker import TaskWorker
from tests.support.clock import Clock
from tests.support.task_runners import ME, comes, seen
from tests.support.task_stores import SetClocks

WALL = "portico.library.tasks.mcp.remote_task.time"
KIND = "remote"
NOTHING = Raw(b"{}")
INPUT = encode(
    RemoteTask(
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
)


class Served:
    """A worker that follows the task of a server, and the server's state."""

    def __init__(self) -> None:
        self.now = SetClocks()
        self.runner = FollowRunner(lambda _: self._relay)
        self.worker = TaskWorker(lambda: tasks_in_memory(clocks=self.now.clocks))
        self.worker.register(KIND, self.runner)
        self.queries = 0
        self.methods: list[str] = []
        self.status = "working"

    async def _relay(self, request: Request, context: Context) -> Response:
        self.queries += 1
        self.methods.append(request.method)
        result = {"resultType": "complete", "content": []}
        state = {"taskId": "t", "status": self.status, "pollIntervalMs": 1, "result": result}
        return Response(id=b"0", result=json.dumps(state).encode())

    async def when(self, id: str, is_so: Callable[[TaskRecord], object]) -> TaskRecord:
        return await seen(self.worker.store, id, is_so)

    async def ended(self, id: str) -> TaskRecord:
        return await self.when(id, lambda task: task.is_finished)


@pytest.mark.parametrize("jump_s", [1e6, -1e6])
async def test_a_wall_clock_that_is_set_does_not_end_a_running_task(
    monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    served = Served()
    monkeypatch.setattr(WALL, lambda: served.now.wall)

    async def run(work: object) -> object:
        return await served.runner.follow(INPUT, work)  # type: ignore[arg-type]

    task = await served.worker.adopt(ME, KIND, INPUT, run)  # type: ignore[arg-type]
    await comes(lambda: served.queries)
    served.now.wall += jump_s
    before = served.queries
    await comes(lambda: served.queries >= before + 3)
    assert (await served.when(task.id, lambda _: True)).state is RUNNING
    served.status = "completed"
    assert (await served.ended(task.id)).state is COMPLETED
    await served.worker.close()


async def test_the_time_that_has_passed_counts_after_a_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served = Served()
    monkeypatch.setattr(WALL, lambda: served.now.wall + 59.8)
    task = await served.worker.submit(ME, KIND, INPUT)
    ended = await served.ended(task.id)
    assert ended.state is FAILED
    assert ended.message.startswith("rig did not finish the task within its ttl of 60 s")
    assert served.queries > 1
    await served.worker.close()


async def test_a_task_whose_time_passed_while_portico_was_down_is_queried_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served = Served()
    served.status = "completed"
    monkeypatch.setattr(WALL, lambda: served.now.wall + 3600)
    task = await served.worker.submit(ME, KIND, INPUT)
    assert (await served.ended(task.id)).state is COMPLETED
    assert served.queries == 1
    await served.worker.close()


async def test_a_wall_clock_that_was_set_back_does_not_extend_the_time(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    served = Served()
    monkeypatch.setattr(WALL, lambda: served.now.wall - 1e6)
    task = await served.worker.submit(ME, KIND, INPUT)
    await comes(lambda: served.queries)
    await clock.advance(61)
    assert (await served.ended(task.id)).state is FAILED
    await served.worker.close()


async def test_the_task_of_an_agent_that_has_ended_is_cancelled_at_its_server() -> None:
    served = Served()
    principal = agent_principal("ended")
    task = await served.worker.submit(principal, KIND, INPUT)
    ended = await seen(served.worker.store, task.id, lambda one: one.is_finished, principal)
    assert (ended.state, ended.message) == (ORPHANED.state, ORPHANED.message)
    await comes(lambda: served.methods)
    assert served.methods == ["tasks/cancel"]
    await served.worker.close()
