"""Worker processes on one store are killed at random: no task is lost, and none runs twice."""

import asyncio
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from portico.library.tasks.store.record import COMPLETED, INTERRUPTED, TaskRecord
from portico.library.tasks.store.store import TaskStore, tasks_in_folder
from tests.rigs.task_worker_process import MANY
from tests.support.shared import ROOT
from tests.support.soak import times
from tests.support.task_runners import ME, PLAIN, REPEATABLE, comes

WORKER = ROOT / "tests" / "rigs" / "task_worker_process.py"
TASKS, KILLS = times(500, 5000), times(10, 50)


class WorkerProcesses:
    """Processes that run the tasks of one store, and their ledger."""

    def __init__(self, folder: Path, count: int) -> None:
        self._folder = folder
        self._ledger = folder / "ledger"
        self._running = [self._start() for _ in range(count)]

    def _start(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [sys.executable, str(WORKER), str(self._folder), str(self._ledger)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
            stdin=subprocess.PIPE,
        )

    def replace(self, place: int) -> None:
        """Kill one, and start another."""
        self._running[place].kill()
        self._running[place].communicate()
        self._running[place] = self._start()

    def events(self, event: str) -> Counter[str]:
        """How often each task had an event."""
        lines = self._ledger.read_text().splitlines() if self._ledger.exists() else ()
        pairs = (line.partition(" ") for line in lines)
        return Counter(id for kind, _, id in pairs if kind == event)

    def end(self) -> list[int]:
        """End them; their exit codes."""
        for process in self._running:
            process.communicate()
        return [process.returncode for process in self._running]


async def submit(store: TaskStore, random: Random, count: int) -> list[TaskRecord]:
    """Submit tasks of both kinds."""
    kinds = random.choices((PLAIN, REPEATABLE), k=count)
    inputs = [b"%d" % random.randrange(1, 40) for _ in kinds]
    return await asyncio.gather(
        *(
            store.submit(ME, kind, input, is_repeatable=kind == REPEATABLE)
            for kind, input in zip(kinds, inputs, strict=True)
        )
    )


async def ended(store: TaskStore, tasks: list[TaskRecord]) -> list[TaskRecord]:
    """Wait for the ends of all tasks; return them."""
    async with asyncio.timeout(60):
        while True:
            found = [await store.get(ME, task.id) for task in tasks]
            known = [task for task in found if task is not None]
            assert len(known) == len(tasks), "a task vanished"
            if all(task.is_finished for task in known):
                return known
            await asyncio.sleep(0.05)


@pytest.mark.slow
@pytest.mark.soak
async def test_every_task_ends_once_whichever_worker_is_killed(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    store, random = tasks_in_folder(str(tmp_path), MANY), Random(15)
    tasks = await submit(store, random, TASKS // KILLS)
    workers = WorkerProcesses(tmp_path, 3)
    for _ in range(KILLS):
        enough = workers.events("start").total() + random.randrange(1, TASKS // KILLS // 2)
        await comes(lambda: workers.events("start").total() >= enough)  # noqa: B023
        workers.replace(random.randrange(3))
        if len(tasks) < TASKS:
            tasks += await submit(store, random, TASKS // KILLS)
    found = await ended(store, tasks)
    assert len(found) == TASKS
    plain = [task for task in found if not task.is_repeatable]
    assert {task.state for task in plain} <= {COMPLETED, INTERRUPTED}
    assert {task.state for task in found if task.is_repeatable} == {COMPLETED}
    lost = sum(task.state is INTERRUPTED for task in plain)
    assert lost <= 4 * KILLS
    begun, done = workers.events("start"), workers.events("end")
    assert max(begun[task.id] for task in plain) == 1
    assert all(done[task.id] >= 1 for task in found if task.state is COMPLETED)
    results = [await store.result(task) for task in found if task.state is COMPLETED]
    assert all(result is not None for result in results)
    assert workers.end() == [0, 0, 0]
    assert [await store.get(ME, task.id) for task in tasks] == found, "a task has changed"
    again = [await store.result(task) for task in found if task.state is COMPLETED]
    assert again == results
    await store.close()
    record_property("soak", f"{TASKS} tasks, {KILLS} workers killed, {lost} interrupted, 0 lost")


_FULL = """
import asyncio, resource, sys
from portico.library.tasks.store.record import TaskLimits
from portico.library.tasks.store.store import tasks_in_folder
from portico.library.tasks.worker.work import RunOutcome
from portico.library.tasks.worker.worker import TaskWorker, WorkerSettings

class LargeRunner:
    is_repeatable = begins_itself = False

    async def run(self, work):
        begun.append(work)
        await full.wait()
        return RunOutcome(payload=b"x" * int(work.input))

def report(words):
    if "is not stored yet" in words:
        print(words.partition(": ")[2])
        reported.append(words)
        if len(reported) == 2:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

async def main():
    worker = TaskWorker(
        lambda: tasks_in_folder(sys.argv[1]),
        WorkerSettings(lease_s=0.2),
        report=report,
        finished=lambda task: print(task.state.value),
    )
    worker.register("large", LargeRunner())
    tasks = [await worker.submit("local", "large", size) for size in (b"60000", b"200000")]
    while len(begun) < 2:
        await asyncio.sleep(0.01)
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, hard))
    full.set()
    await worker.wait_until_idle()
    for task in tasks:
        done = await worker.store.get("local", task.id)
        print(len(await worker.store.result(done)))
    await worker.close()

soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
begun, full, reported = [], asyncio.Event(), []
asyncio.run(main())
"""


def test_results_wait_for_space_on_a_full_disk(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", _FULL, str(tmp_path / "state")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.stderr == ""
    *refused, one, two, first, second = run.stdout.splitlines()
    assert len(refused) == 2
    assert all("free space" in line for line in refused)
    assert (one, two) == ("completed", "completed")
    assert (first, second) == ("60000", "200000")
