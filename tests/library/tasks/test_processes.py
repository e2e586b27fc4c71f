"""Several processes on one task store: no task runs twice, and none is lost."""

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from portico.library.tasks.store.record import (
    COMPLETED,
    INTERRUPTED,
    QUEUED,
    RUNNING,
    TaskLimits,
    TaskRecord,
)
from portico.library.tasks.store.store import TaskStore, tasks_in_folder
from tests.support.shared import ROOT

ME = "local"
WORKER = ROOT / "tests" / "rigs" / "task_worker.py"
KILLS = 5


class Workers:
    """Worker processes on one store, and the ledger of the tasks that they began."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ledger = folder / "ledger"
        self.store = tasks_in_folder(str(folder / "state"), TaskLimits(in_progress=10_000))

    def start(self, owner: str, *mode: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, str(WORKER), str(self.folder / "state"), self.ledger, owner, *mode],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def begun(self) -> Counter[str]:
        return Counter(self.ledger.read_text().split() if self.ledger.exists() else ())

    async def finished(self, process: "subprocess.Popen[str]") -> int:
        await asyncio.to_thread(process.communicate, timeout=60)
        return process.returncode

    async def recovered(self, count: int) -> list[TaskRecord]:
        """Recover until this many leases have expired."""
        found: list[TaskRecord] = []
        async with asyncio.timeout(60):
            while len(found) < count:
                found += await self.store.recover()
                await asyncio.sleep(0.05)
        return found


async def submit(store: TaskStore, kind: str, count: int) -> list[str]:
    repeats = kind == "repeatable"
    tasks = await asyncio.gather(
        *(store.submit(ME, kind, b"input", is_repeatable=repeats) for _ in range(count))
    )
    return [task.id for task in tasks]


async def states(store: TaskStore, ids: list[str]) -> Counter[str]:
    tasks = [await store.get(ME, id) for id in ids]
    return Counter("lost" if task is None else str(task.state) for task in tasks)


async def test_two_workers_never_get_the_same_task(tmp_path: Path) -> None:
    workers = Workers(tmp_path)
    ids = await submit(workers.store, "plain", 300)
    processes = [workers.start(owner) for owner in ("one", "two")]
    assert [await workers.finished(process) for process in processes] == [0, 0]
    assert workers.begun() == Counter(ids)
    assert await states(workers.store, ids) == {COMPLETED: 300}
    await workers.store.close()


async def test_the_tasks_of_a_killed_worker_are_interrupted_or_repeated(tmp_path: Path) -> None:
    workers = Workers(tmp_path)
    plain = await submit(workers.store, "plain", 3)
    repeatable = await submit(workers.store, "repeatable", 3)
    killed = workers.start("killed", "hold")
    assert killed.stdout is not None
    assert await asyncio.to_thread(killed.stdout.readline) == "6\n"
    killed.kill()
    killed.communicate()
    found = {task.id: task.state for task in await workers.recovered(6)}
    assert found == dict.fromkeys(plain, INTERRUPTED) | dict.fromkeys(repeatable, QUEUED)
    assert await workers.finished(workers.start("next")) == 0
    assert await states(workers.store, plain) == {INTERRUPTED: 3}
    assert await states(workers.store, repeatable) == {COMPLETED: 3}
    assert workers.begun() == Counter(plain + repeatable * 2)
    await workers.store.close()


async def test_a_worker_that_wakes_up_late_overwrites_nothing(tmp_path: Path) -> None:
    workers = Workers(tmp_path)
    ids = await submit(workers.store, "repeatable", 3)
    late = workers.start("late", "hold")
    assert late.stdout is not None
    assert await asyncio.to_thread(late.stdout.readline) == "3\n"
    late.send_signal(signal.SIGSTOP)
    await workers.recovered(3)
    assert await workers.finished(workers.start("next")) == 0
    late.send_signal(signal.SIGCONT)
    output, _ = await asyncio.to_thread(late.communicate, "\n")
    assert output == "0\n"
    for id in ids:
        task = await workers.store.get(ME, id)
        assert task is not None
        assert await workers.store.result(task) == b"next"
    await workers.store.close()


@pytest.mark.slow
async def test_no_task_is_lost_when_workers_are_killed_at_any_time(tmp_path: Path) -> None:
    workers = Workers(tmp_path)
    ids: list[str] = []
    for round in range(KILLS):
        ids += await submit(workers.store, "plain", 40)
        process = workers.start(f"killed {round}")
        begun = workers.begun().total()
        while workers.begun().total() < begun + 3 * round:  # noqa: ASYNC110  (another process)
            await asyncio.sleep(0.001)
        process.kill()
        process.communicate()
    async with asyncio.timeout(60):
        while (await states(workers.store, ids)).keys() - {COMPLETED, INTERRUPTED}:
            await workers.store.recover()
            await workers.finished(workers.start("next"))
    ended = await states(workers.store, ids)
    assert ended.total() == len(ids)
    assert ended[INTERRUPTED] <= KILLS
    assert set(workers.begun()) == set(ids)
    assert max(workers.begun().values()) == 1
    await workers.store.close()


async def test_a_task_is_interrupted_when_it_is_read_after_its_worker_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEASE_S", "600")
    workers = Workers(tmp_path)
    for reads_one in (True, False):
        (id,) = await submit(workers.store, "plain", 1)
        killed = workers.start(f"killed-{id}", "hold")
        assert killed.stdout is not None
        assert await asyncio.to_thread(killed.stdout.readline) == "1\n"
        assert await states(workers.store, [id]) == {RUNNING: 1}
        assert await workers.store.recover() == []
        killed.kill()
        killed.communicate()
        if reads_one:
            assert await states(workers.store, [id]) == {INTERRUPTED: 1}
        else:
            page = await workers.store.page(ME)
            assert page is not None
            assert page.tasks[0].state is INTERRUPTED
    locks = tmp_path / "state" / "tasks.db.workers"
    assert len(list(locks.iterdir())) == 2
    await workers.store.prune()
    assert list(locks.iterdir()) == []
    await workers.store.close()


async def test_a_worker_whose_lock_was_removed_has_its_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEASE_S", "600")
    workers = Workers(tmp_path)
    ids = await submit(workers.store, "plain", 1)
    alive = workers.start("alive", "hold")
    assert alive.stdout is not None
    assert await asyncio.to_thread(alive.stdout.readline) == "1\n"
    (tmp_path / "state" / "tasks.db.workers" / "alive").unlink()
    assert await states(workers.store, ids) == {RUNNING: 1}
    await asyncio.to_thread(alive.communicate, "\n")
    assert await states(workers.store, ids) == {COMPLETED: 1}
    assert not list((tmp_path / "state" / "tasks.db.workers").iterdir())
    await workers.store.close()
