"""Delegations outlive their windows, and none is lost or repeated, whatever is killed."""

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from portico.core.model.context import LOCAL
from portico.library.tasks.store.record import COMPLETED, INTERRUPTED, TaskLimits, TaskRecord
from portico.library.tasks.store.store import TaskStore, tasks_in_folder
from tests.agents.delegation.delegations import acp, wrote
from tests.agents.turns.rig import log_of
from tests.serve.kill_storm import KillStorm
from tests.serve.owners import owner_in
from tests.serve.task_windows import TaskWindow, every
from tests.support.running import WAIT_S
from tests.support.soak import times
from tests.wrap.faults import alive, until

pytestmark = pytest.mark.slow

TASKS, KILLS, AT_ONCE = times(40, 200), times(10, 50), 8
GONE_S = 20.0
"""How long anything may stay after the last window, on a busy machine."""
REASON = "interrupted: the process that ran the task ended before the task did"
MANY = TaskLimits(in_progress=100_000, kept=100_000)
RESUMES: dict[str, Any] = {"sessionCapabilities": {"resume": {}}}


class DelegateWindow(TaskWindow):
    """A window whose client delegates tasks."""

    def delegate(self, prompt: str) -> int:
        """Delegate a task, as a task of the protocol; the id of the request."""
        more: dict[str, Any] = {} if self.modern else {"task": {}}
        arguments = {"task_type": "code", "prompt": prompt}
        return self.begin("tools/call", name="delegate_task", arguments=arguments, **more)


class Household:
    """Windows of one gateway with scripted agents, and all processes that belong to them."""

    def __init__(self, folder: Path, *steps: Any) -> None:
        self.folder = folder
        self.work = folder / "work"
        self.work.mkdir()
        self.home = folder / "home"
        self.log = folder / "log"
        script = {"log": str(self.log), "capabilities": RESUMES, "echo_prompt": True}
        agent = acp(*steps, script=script)
        agent["env"] = {"HOUSEHOLD": str(folder)}
        self.config = wrote(
            folder / "portico.toml",
            {"fake": agent, "warm": {**agent, "pool": {"min": 1}}},
            gateway={"expose": "all"},
            tasks={"lease_s": 1, "in_progress": 100_000, "keep_count": 100_000},
            agents_defaults={
                "max_concurrent": AT_ONCE,
                "roots": [str(self.work)],
                "strategy": "round-robin",
            },
        )
        self.stack = ExitStack()

    def open(self, *, modern: bool = True) -> DelegateWindow:
        """One more window, in a process group of its own as clients start it."""
        portico = [sys.executable, "-m", "portico", "serve", "--config", str(self.config)]
        command = ["setsid", "--wait", "env", f"PORTICO_HOME={self.home}", *portico]
        window = self.stack.enter_context(DelegateWindow(command, modern=modern))
        window.greet()
        return window

    def processes(self) -> set[int]:
        """All living processes whose command line or variables name the folder."""
        found = set()
        for process in Path("/proc").iterdir():
            if process.name.isdigit() and str(self.folder).encode() in _about(process):
                found.add(int(process.name))
        return alive(found - {os.getpid()})

    def owner(self) -> int:
        """The process that has the gateway; waits for one that is being started."""
        return owner_in(self.home / "state")

    def prompts(self) -> Counter[str]:
        """How often an agent got each prompt."""
        messages = log_of(self.log, "client") if self.log.exists() else []
        sent = [one["params"]["prompt"] for one in messages if one["method"] == "session/prompt"]
        return Counter(blocks[0]["text"] for blocks in sent)

    def store(self) -> TaskStore:
        """The store of the tasks, as another process opens it."""
        return tasks_in_folder(str(self.home / "state"), MANY)


def _about(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
    except OSError:
        return b""


@contextmanager
def household(folder: Path, *steps: Any) -> Iterator[Household]:
    """Windows that have ended when the block is left, and with them all that they started."""
    own = Household(folder, *steps)
    with own.stack:
        yield own
    until(lambda: not own.processes(), GONE_S)
    left = own.processes()
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left, "a process outlived the last window"


async def finished(store: TaskStore) -> dict[str, TaskRecord]:
    """Wait until every task has ended; return them all."""
    async with asyncio.timeout(2 * WAIT_S):
        while True:
            found = await every(store)
            if all(task.is_finished for task in found.values()):
                return found
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("is_killed", [False, True], ids=["closed", "killed"])
@pytest.mark.parametrize("modern", [False, True], ids=["legacy", "modern"])
async def test_a_task_completes_without_the_windows_that_began_it(
    tmp_path: Path, modern: bool, is_killed: bool
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with household(tmp_path, {"pass": str(gate)}) as own:
        first = own.open()  # which starts the gateway
        asking = own.open(modern=modern)
        task = asking.task_in(asking.delegate("outlive us"))
        assert until(lambda: own.prompts()["outlive us"] == 1)
        for window in (first, asking):
            if is_killed:
                window.process.kill()
            else:
                window.close_input()
            window.process.wait(WAIT_S)
        await asyncio.to_thread(gate.write_text, "it is done; ")
        store = own.store()
        found = (await finished(store))[task]
        result = await store.result(found)
        await store.close()
        assert found.state is COMPLETED
        assert result is not None
        assert b"it is done; " in result
        assert until(lambda: not own.processes(), GONE_S), "the owner stays without work"


class Storm(KillStorm[DelegateWindow, str]):
    """Clients that delegate prompts."""

    def __init__(self, own: Household, seed: int) -> None:
        super().__init__(lambda modern: own.open(modern=modern), seed)
        self.own = own

    def submit(self, count: int) -> None:
        """Delegate through any of the windows."""
        for _ in range(count):
            window, prompt = self.random.choice(self.open), f"task {self.count}"
            self.sent.append((window, window.delegate(prompt), prompt))
            self.count += 1

    def submit_until_one_runs(self, count: int) -> None:
        """Delegate until an agent gets another prompt: an ending owner accepts no task."""
        begun = self.own.prompts().total()
        for _ in range(10):
            self.submit(count)
            if until(lambda: self.own.prompts().total() > begun, 10):
                return
            self.collect()
        raise AssertionError("no task runs")

    def kill(self, what: str) -> None:
        """Kill the owner, or a window."""
        if what == "owner":
            os.kill(self.own.owner(), signal.SIGKILL)
            return
        self.kill_window()


@pytest.mark.soak
@pytest.mark.timeout(times(300, 3600))
async def test_every_accepted_delegation_ends_once_whichever_process_is_killed(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    steps = [{"grandchild": str(tmp_path / "grandchild")}, {"pause": 0.2}]
    with household(tmp_path, *steps) as own:
        storm = Storm(own, seed=16)
        kills = ["owner"] * (KILLS * 6 // 10) + ["window"] * (KILLS - KILLS * 6 // 10)
        storm.random.shuffle(kills)
        share = TASKS // KILLS
        for what in kills:
            storm.submit_until_one_runs(share)
            storm.kill(what)
            storm.collect()
        while len(storm.accepted) < TASKS:  # a kill takes the answers that are on their way
            storm.submit(TASKS - len(storm.accepted))
            storm.collect()
        store = own.store()
        tasks = await finished(store)

        assert storm.accepted.keys() <= tasks.keys(), "an accepted task vanished"
        assert {task.state for task in tasks.values()} <= {COMPLETED, INTERRUPTED}
        prompts = own.prompts()
        assert max(prompts.values()) == 1, "a prompt was sent twice"
        interrupted = [task for task in tasks.values() if task.state is INTERRUPTED]
        assert interrupted, "no kill met a running task"
        assert {task.message for task in interrupted} == {REASON}
        for id, prompt in storm.accepted.items():
            if tasks[id].state is COMPLETED:
                assert json.dumps(prompt) in await result_text(store, tasks[id])

        resumed = [await store.resume(LOCAL, task.id) for task in interrupted[:5]]
        tasks = await finished(store)
        for new in resumed:
            assert new is not None
            assert tasks[new.id].state is COMPLETED, tasks[new.id]
            assert not tasks[new.id].is_error
        await store.close()
    done = f"{len(storm.accepted)} delegations, {len(interrupted)} interrupted by {KILLS} kills"
    record_property("soak", f"{done}, none lost or repeated, no process left")


async def result_text(store: TaskStore, task: TaskRecord) -> str:
    """The text of a delegation's result."""
    stored = json.loads(await store.result(task) or b"{}")
    text: str = stored["result"]["structuredContent"]["result"]
    return text
