"""Floods, and payloads too large for a database."""

import asyncio
import os
import re
import resource
import sqlite3
import stat
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from portico.core.state.store_error import StoreError
from portico.library.tasks.store.record import COMPLETED, NotAccepted, TaskLimits
from portico.library.tasks.store.store import TaskStore, tasks_in_folder
from tests.support.task_stores import OpenStore, SetClocks, running

ME = "local"
MB = 1 << 20


def size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def files(folder: Path) -> list[Path]:
    return [*(folder / "tasks.db.files").iterdir()]


def peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


async def accepted(store: TaskStore, count: int, input: bytes) -> int:
    """How many of many submissions at once are accepted."""
    jobs = (store.submit(ME, "tool", input) for _ in range(count))
    outcomes = await asyncio.gather(*jobs, return_exceptions=True)
    assert all(isinstance(each, NotAccepted) for each in outcomes if isinstance(each, Exception))
    return sum(not isinstance(each, Exception) for each in outcomes)


@pytest.mark.slow
async def test_a_flood_of_tasks_is_refused_in_bounded_space(tmp_path: Path) -> None:
    store = tasks_in_folder(str(tmp_path))
    assert await accepted(store, 1000, b"x" * 1000) == 100
    before = peak_memory()
    assert sum([await accepted(store, 1000, b"x" * 1000) for _ in range(99)]) == 0
    assert peak_memory() - before < 32 * MB
    await store.close()
    assert size(tmp_path) < 2 * MB


async def finish_one(store: TaskStore) -> None:
    await store.submit(ME, "tool", b"x")
    _, lease = await running(store)
    assert await store.finish(lease, COMPLETED, b"y") is not None


async def count_finished(store: TaskStore) -> int:
    page = await store.page(ME, 10_000)
    assert page is not None
    return len(page.tasks)


async def test_finished_tasks_beyond_the_limit_are_removed_some_at_a_time(
    opened: OpenStore, now: SetClocks
) -> None:
    async with opened(TaskLimits(kept=5, grace_s=100)) as store:
        for _ in range(200):
            await finish_one(store)
            now.advance(0.001)
        assert await count_finished(store) == 200  # none may be removed before its time
        now.advance(100)
        left = []
        for _ in range(4):
            await finish_one(store)
            now.advance(100)
            left.append(await count_finished(store))
        assert left == [137, 74, 11, 5]


async def test_many_tasks_are_removed_while_others_are_stored(
    opened: OpenStore, now: SetClocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("portico.library.tasks.store.store.REMOVAL_BATCH", 10)
    async with opened() as store:
        for _ in range(45):
            await finish_one(store)
        removing = asyncio.create_task(store.remove_finished(ME))
        added = await store.submit(ME, "tool", b"z")
        assert await removing == 45
        page = await store.page(ME)
        assert page is not None
        assert [task.id for task in page.tasks] == [added.id]


async def test_large_inputs_that_are_refused_leave_no_files(tmp_path: Path) -> None:
    store = tasks_in_folder(str(tmp_path), TaskLimits(in_progress=3))
    assert await accepted(store, 20, b"x" * 100_000) == 3
    assert len(files(tmp_path)) == 3
    await store.close()


async def test_a_result_of_100_mb_is_kept_in_a_file_and_removed_with_its_task(
    tmp_path: Path,
) -> None:
    now = SetClocks()
    store = tasks_in_folder(str(tmp_path), TaskLimits(), now.clocks)
    await store.submit(ME, "tool", b"", ttl_s=0)
    _, lease = await running(store)
    result = os.urandom(MB) * 100
    done = await store.finish(lease, COMPLETED, result)
    assert done is not None
    assert await store.result(done) == result
    assert [stat.S_IMODE(file.stat().st_mode) for file in files(tmp_path)] == [0o600]
    assert size(tmp_path) - 100 * MB < MB
    now.advance(1000)
    assert await store.prune() == 1
    assert files(tmp_path) == []
    assert await store.result(done) is None
    await store.close()


async def test_files_go_with_tasks_that_make_room(tmp_path: Path) -> None:
    now = SetClocks()
    store = tasks_in_folder(str(tmp_path), TaskLimits(kept=2, grace_s=300), now.clocks)
    for _ in range(5):
        await store.submit(ME, "tool", b"i" * 100_000)
        _, lease = await running(store)
        await store.finish(lease, COMPLETED, b"r" * 100_000)
        now.advance(301)
    assert len(files(tmp_path)) == 4
    await store.close()


async def test_the_result_of_a_late_worker_leaves_no_file(tmp_path: Path) -> None:
    store = tasks_in_folder(str(tmp_path))
    await store.submit(ME, "tool", b"")
    _, lease = await running(store)
    await store.finish(lease, COMPLETED, b"r" * 100_000)
    assert await store.finish(lease, COMPLETED, b"late" * 100_000) is None
    assert len(files(tmp_path)) == 1
    await store.close()


async def test_files_of_killed_writers_are_removed_later(tmp_path: Path) -> None:
    store = tasks_in_folder(str(tmp_path))
    task = await store.submit(ME, "tool", b"i" * 100_000)
    (kept,) = files(tmp_path)
    strays = [tmp_path / "tasks.db.files" / name for name in ("old", "new")]
    for stray in strays:
        await asyncio.to_thread(stray.write_bytes, b"half")
    for file in (kept, strays[0]):
        os.utime(file, (0, time.time() - 600))
    await store.prune()
    # The new one may belong to a task that is being stored.
    assert {*files(tmp_path)} == {kept, strays[1]}
    assert await store.input(task) == b"i" * 100_000
    await store.close()


@pytest.mark.parametrize("damage", [b"", b"other", None])
async def test_a_damaged_or_missing_file_is_reported(tmp_path: Path, damage: bytes | None) -> None:
    store = tasks_in_folder(str(tmp_path))
    task = await store.submit(ME, "tool", b"i" * 100_000)
    (file,) = files(tmp_path)
    if damage is None:
        file.unlink()
    else:
        await asyncio.to_thread(file.write_bytes, damage)
    with pytest.raises(StoreError, match=r"cannot read .*; restore"):
        await store.input(task)
    assert await store.get(ME, task.id) == task
    await store.close()


_FULL = """
import asyncio, resource, sys
from portico.core.state.store_error import StoreError
from portico.library.tasks.store.record import COMPLETED
from portico.library.tasks.store.store import tasks_in_folder

async def main():
    store = tasks_in_folder(sys.argv[1])
    for _ in range(2):
        await store.submit("local", "tool", b"first")
    task = await store.claim("worker", ("tool",))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    for work in (
        lambda: store.submit("local", "tool", b"x" * 200_000),
        lambda: store.submit("local", "tool", b"x" * 60_000),
        lambda: store.finish(task.lease, COMPLETED, b"x" * 200_000),
        lambda: store.finish(task.lease, COMPLETED, b"x" * 60_000),
    ):
        try:
            print(await work())
        except StoreError as error:
            print("refused:", error)
    page = await store.page("local")
    print(len(page.tasks), [task.state.value for task in page.tasks])
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    done = await store.finish(task.lease, COMPLETED, b"x" * 200_000)
    print(done.state.value, len(await store.result(done)))
    await store.close()

asyncio.run(main())
"""


def test_a_full_disk_refuses_tasks_before_they_are_accepted(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", _FULL, str(tmp_path / "state")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stderr == ""
    *refused, kept, done = run.stdout.splitlines()
    assert [line.split()[0] for line in refused] == ["refused:"] * 4
    assert all("free space" in line for line in refused)
    assert kept == "2 ['queued', 'starting']"
    assert done == "completed 200000"
    assert not [*(tmp_path / "state").rglob("*.draft")]


async def everything(store: TaskStore, id: str) -> object:
    """All that the store has of the first page of tasks, and of one of them; raises StoreError for
    damage, also if it was set aside."""
    page = await store.page(ME)
    task = await store.get(ME, id)
    if await store.damaged() == [id]:
        raise StoreError("restore it")
    assert page is not None
    assert task is not None
    return page, task, await store.input(task), await store.result(task)


async def test_a_changed_bit_of_a_task_is_reported_wherever_it_is(tmp_path: Path) -> None:
    store = tasks_in_folder(str(tmp_path))
    await store.submit(ME, "tool", b"the input")
    _, lease = await running(store)
    done = await store.finish(lease, COMPLETED, b"the result")
    assert done is not None
    await everything(store, done.id)
    await store.close()
    path = tmp_path / "tasks.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("VACUUM")  # leaves no remains of earlier records
    data = await asyncio.to_thread(path.read_bytes)
    words = (done.id, ME, "the input", "the result")
    places = [at.start() for word in words for at in re.finditer(word.encode(), data)]
    assert len(places) > 8
    for place in places:
        damaged = bytearray(data)
        damaged[place] ^= 1
        await asyncio.to_thread(path.write_bytes, damaged)
        store = tasks_in_folder(str(tmp_path))
        with pytest.raises(StoreError, match="restore"):
            await everything(store, done.id)
        await store.close()
