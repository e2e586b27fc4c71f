"""A delegation reads and writes no more than it must, and routes its agent once."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from portico import Context
from portico.agents.delegation.agents_app import AgentsApp
from portico.agents.routing.routing import route
from portico.core.config.read import read
from portico.core.model.context import LOCAL
from portico.core.state.database import FileDatabase
from portico.library.tasks.store.store import tasks_in_folder
from tests.agents.delegation.delegations import Table, acp, wrote
from tests.support.messages import modern, result

MOST_JOBS = 6
WARM: dict[str, Any] = {"min": 1, "max": 1}


class Agents:
    """The tools of agents, in this process."""

    def __init__(self, folder: Path, agents: dict[str, Table], **defaults: Any) -> None:
        self.folder = folder
        self.work = folder / "work"
        self.work.mkdir()
        given = {"roots": [str(self.work)], **defaults}
        config = read(wrote(folder / "portico.toml", agents, agents_defaults=given)).agents
        assert config is not None
        self._app = AgentsApp(config, str(folder))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self._app.running():
            yield

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The structured result of a call."""
        message = modern("tools/call", {"name": tool, "arguments": arguments})
        answer = await result(self._app.server, message, Context(principal=LOCAL))
        found: dict[str, Any] = answer["structuredContent"]
        return found

    async def delegate(self, prompt: str = "do it", **more: Any) -> dict[str, Any]:
        """The result of a delegation."""
        given = {"task_type": "code", "prompt": prompt, "cwd": str(self.work), **more}
        return await self.call("delegate_task", **given)

    async def until_warm(self) -> None:
        """Wait until a process is ready."""
        while True:
            (agent,) = (await self.call("agent_status"))["agents"]
            if agent["warm"]:
                return
            await asyncio.sleep(0.01)


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the jobs of all databases, and the choices of agents."""
    counted: Counter[str] = Counter()
    for name in ("read", "write"):
        run = getattr(FileDatabase, name)

        async def counting(self: FileDatabase, job: Any, run: Any = run) -> Any:
            counted["jobs"] += 1
            return await run(self, job)

        monkeypatch.setattr(FileDatabase, name, counting)

    def routing(*args: Any) -> Any:
        counted["routes"] += 1
        return route(*args)

    for module in ("portico.agents.routing.admission", "portico.agents.delegation.agent_host"):
        monkeypatch.setattr(f"{module}.route", routing)
    return counted


async def test_a_delegation_routes_once_and_runs_at_most_six_database_jobs(
    tmp_path: Path, jobs: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    agents = Agents(tmp_path, {"quick": acp({"say": "done"}, pool=WARM)})
    async with agents.running():
        await agents.delegate()  # which opens the databases
        await agents.until_warm()
        loop = asyncio.get_running_loop()
        now = loop.time()
        monkeypatch.setattr(loop, "time", lambda: now)  # the agent answers at once
        jobs.clear()
        found = await agents.delegate()
        assert found["result"] == "done"
        assert found["timings"]["is_warm"]
        assert jobs["routes"] == 1
        assert 0 < jobs["jobs"] <= MOST_JOBS


async def test_equal_prompts_at_the_same_time_go_to_different_agents(tmp_path: Path) -> None:
    two = {name: acp({"pause": 0.3}, {"say": "done"}) for name in ("first", "second")}
    agents = Agents(tmp_path, two, strategy="round-robin")
    async with agents.running():
        found = await asyncio.gather(agents.delegate(), agents.delegate())
    assert sorted(one["agent_id"] for one in found) == ["first", "second"]


async def test_an_answer_that_was_kept_in_memory_is_stored_as_well(tmp_path: Path) -> None:
    agents = Agents(tmp_path, {"quick": acp({"say": "done"})})
    async with agents.running():
        found = await agents.delegate()
        for _ in range(2):
            again = await agents.call("task_status", task_id=found["task_id"])
            assert again["result"] == "done"
        store = tasks_in_folder(str(tmp_path))
        task = await store.get(LOCAL, found["task_id"])
        assert task is not None
        assert b'"done"' in (await store.result(task) or b"")
        await store.close()
