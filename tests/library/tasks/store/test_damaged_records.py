"""One damaged record is set aside: every other task goes on, and the operator is told which."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from portico.library.tasks.store.record import COMPLETED, TaskRecord
from portico.library.tasks.store.store import TaskStore, tasks_in_folder
from portico.library.tasks.worker.work import RunOutcome, Work
from portico.library.tasks.worker.worker import TaskWorker, WorkerSettings
from tests.support.task_stores import running

ME = "local"


def flip(folder: Path, id: str, place: int = 40) -> None:
    """Flip one bit of a task's record."""
    with closing(sqlite3.connect(folder / "tasks.db")) as db, db:
        (record,) = db.execute("SELECT record FROM tasks WHERE id = ?", (id,)).fetchone()
        damaged = bytearray(record)
        damaged[place] ^= 1
        db.execute("UPDATE tasks SET record = ? WHERE id = ?", (bytes(damaged), id))


async def three(store: TaskStore) -> list[TaskRecord]:
    """Three queued tasks."""
    return [await store.submit(ME, "tool", b"input" * 20_000) for _ in range(3)]


async def listed(store: TaskStore) -> list[str]:
    page = await store.page(ME)
    assert page is not None
    return [task.id for task in reversed(page.tasks)]


@pytest.mark.parametrize("place", [0, 15, 16, 40, -1])
async def test_the_rest_is_listed_and_found(tmp_path: Path, place: int) -> None:
    store = tasks_in_folder(str(tmp_path))
    told: list[str] = []
    store.report_to(told.append)
    first, second, third = await three(store)
    flip(tmp_path, second.id, place)
    assert await listed(store) == [first.id, third.id]
    assert await store.get(ME, second.id) is None
    assert await store.get(ME, third.id) == third
    assert await store.damaged() == [second.id]
    (words,) = told
    assert words.startswith(f"cannot read task {second.id}: its record is damaged; ")
    assert "`portico tasks prune --damaged`" in words
    await store.close()


async def test_every_operation_of_clients_and_workers_goes_on(tmp_path: Path) -> None:
    store = tasks_in_folder(str(tmp_path))
    first, second, _ = await three(store)
    flip(tmp_path, first.id)
    task, lease = await running(store)
    assert task.id == second.id
    flip(tmp_path, second.id)
    assert await store.renew(lease) is None
    assert await store.progress(lease, "words") is None
    assert await store.finish(lease, COMPLETED, b"result") is None
    assert await store.recover() == []
    assert await store.cancel(ME, second.id) is None
    assert await store.answer(ME, second.id, {}) is None
    assert await store.resume(ME, second.id) is None
    assert await store.room(ME) == store.limits.in_progress - 1
    assert await store.damaged() == [first.id, second.id]
    await store.close()


async def test_two_processes_that_find_it_report_it_once(tmp_path: Path) -> None:
    stores = [tasks_in_folder(str(tmp_path)) for _ in range(2)]
    told: list[str] = []
    for store in stores:
        store.report_to(told.append)
    _, second, _ = await three(stores[0])
    flip(tmp_path, second.id)
    found = await asyncio.gather(*(listed(store) for store in stores * 5))
    assert {len(ids) for ids in found} == {2}
    assert len(told) == 1
    for store in stores:
        await store.close()


async def test_it_is_kept_with_its_data_until_it_is_removed(tmp_path: Path) -> None:
    store = tasks_in_folder(str(tmp_path))
    _, second, _ = await three(store)
    flip(tmp_path, second.id)
    files = list((tmp_path / "tasks.db.files").iterdir())
    await listed(store)
    assert await store.prune() == 0
    assert await store.remove_finished(ME) == 0
    assert len(files) == 3
    assert sorted((tmp_path / "tasks.db.files").iterdir()) == sorted(files)
    assert await store.remove_damaged() == 1
    assert len(list((tmp_path / "tasks.db.files").iterdir())) == 2
    assert await store.damaged() == []
    await store.close()


class Echo:
    """A runner whose tasks return their input."""

    is_repeatable = False
    begins_itself = False

    async def run(self, work: Work) -> RunOutcome:
        """Return the input."""
        return RunOutcome(COMPLETED, work.input)


async def test_a_worker_runs_the_other_tasks_and_names_the_damaged_one(tmp_path: Path) -> None:
    store = tasks_in_folder(str(tmp_path))
    first, second, third = await three(store)
    flip(tmp_path, first.id)
    told: list[str] = []
    finished: asyncio.Queue[str] = asyncio.Queue()
    worker = TaskWorker(
        lambda: store,
        WorkerSettings(lease_s=1),
        report=told.append,
        finished=lambda task: finished.put_nowait(task.id),
    )
    worker.register("tool", Echo())
    worker.wake()
    async with asyncio.timeout(60):
        ended = {await finished.get(), await finished.get()}
        while not worker.damaged:  # which a later turn of its loop finds out
            await store.submit(ME, "tool", b"")
            worker.wake()
            await finished.get()
    assert ended == {second.id, third.id}
    assert worker.damaged == [first.id]
    assert [words.split(":")[0] for words in told] == [f"cannot read task {first.id}"]
    await worker.close()
