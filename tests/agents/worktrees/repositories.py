"""Real git repositories, and delegations to scripted agents that work in worktrees of them."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from portico.agents.delegation.agent_host import AgentHost
from portico.agents.delegation.delegate_runner import DelegateRunner
from portico.agents.delegation.stored_delegation import (
    DelegationResult,
    StoredDelegation,
    note_in,
    stored_result,
)
from portico.agents.delegation.worktree_folder import WORKTREES, WorktreeFolders
from portico.agents.routing.quotas import quotas_in_memory
from portico.agents.worktrees.worktree import Worktree
from portico.agents.worktrees.worktrees import Worktrees
from portico.core.config.agents_schema import AgentEntry, AgentPool, AgentsConfig
from portico.core.model.context import LOCAL
from portico.core.protocol.codec import encode
from portico.library.tasks.store.record import TaskRecord
from portico.library.tasks.store.store import TaskStore, tasks_in_folder
from portico.library.tasks.worker.worker import TaskWorker, WorkerSettings
from tests.agents.turns.rig import FAKE, WAIT_S

KIND = "delegate@test"
_AS = ("-c", "user.name=Tester", "-c", "user.email=tester@example.com")


def git(folder: Path, *words: str) -> str:
    """Run git as the user does; its output."""
    run = subprocess.run(
        ["git", *_AS, *words], cwd=folder, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.rstrip("\n")


def repository(folder: Path, **files: str) -> Path:
    """A repository with one commit; without files, it has none."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(content)
    if files:
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", "first")
    return folder


def worker_entry(id: str, *steps: Any, worktree: bool = True) -> AgentEntry:
    """A scripted agent that works in worktrees."""
    whole = {"prompt": list(steps), "capabilities": {"loadSession": True}}
    return AgentEntry(
        id=id,
        command=sys.executable,
        args=("-I", "-S", str(FAKE), json.dumps(whole)),
        capabilities=("code",),
        pool=AgentPool(max=0),
        worktree=worktree,
    )


class Delegations:
    """A worker with scripted agents, whose tasks are in a state folder."""

    def __init__(self, state: Path, worker: TaskWorker) -> None:
        self.state = state
        self.worker = worker
        self.worktrees = Worktrees(str(state / WORKTREES))

    @property
    def store(self) -> TaskStore:
        return self.worker.store

    async def submit(self, agent: str, cwd: Path, follows: TaskRecord | None = None) -> TaskRecord:
        """Store a delegation."""
        earlier = "" if follows is None else note_in(follows.note).worktree
        stored = StoredDelegation(
            task_type="code", prompt="do it", agent_id=agent, cwd=str(cwd), worktree=earlier
        )
        id = "" if follows is None else follows.id
        return await self.worker.submit(LOCAL, KIND, encode(stored), follows=id)

    async def ended(self, task: TaskRecord) -> tuple[TaskRecord, DelegationResult]:
        """Wait for the end of a task; return it, and its result."""
        async with asyncio.timeout(WAIT_S):
            with self.store.watch(task.id) as changes:
                now = await self.store.get(LOCAL, task.id)
                while now is None or not now.is_finished:
                    now = await changes.next()
        result = stored_result(await self.store.result(now))
        return now, result or DelegationResult(task_id=now.id)

    async def resumed(self, id: str) -> tuple[TaskRecord, DelegationResult]:
        """Resume a task, and wait for the end of the new one."""
        fresh = await self.store.resume(LOCAL, id)
        assert fresh is not None
        self.worker.wake()
        return await self.ended(fresh)

    async def run(
        self, agent: str, cwd: Path, follows: TaskRecord | None = None
    ) -> tuple[TaskRecord, DelegationResult]:
        """Run a delegation to its end."""
        return await self.ended(await self.submit(agent, cwd, follows))

    async def events(self, task: TaskRecord) -> str:
        """All events of a task."""
        return "\n".join(event.text for event in await self.store.events(task))

    def worktree(self, task: TaskRecord) -> Worktree:
        """The worktree in which a task worked."""
        found = self.worktrees.find(task.id)
        assert found is not None
        return found


@asynccontextmanager
async def delegations(state: Path, *agents: AgentEntry) -> AsyncIterator[Delegations]:
    """A worker that runs delegations to these agents."""
    config = AgentsConfig(entries={entry.id: entry for entry in agents})
    host = AgentHost(config, quotas_in_memory, str(state))
    worker = TaskWorker(lambda: tasks_in_folder(str(state)), WorkerSettings(lease_s=2.0))
    worker.register(KIND, DelegateRunner(host, worktrees=WorktreeFolders(str(state))))
    worker.start()
    try:
        yield Delegations(state, worker)
    finally:
        await worker.close()
        await host.close()


def names(folder: Path) -> set[str]:
    """All files below a folder, without git's own."""
    found = set()
    for inner, _, inside in os.walk(folder):
        place = Path(inner).relative_to(folder)
        if ".git" not in place.parts:
            found |= {str(place / name) for name in inside if name != ".git"}
    return found
