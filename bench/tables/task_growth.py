"""A store of tasks as it grows: opened, a task finished in it, and its tasks removed."""

import asyncio
import os
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench.process import Workspace
from bench.report import Budget, Section, Table, at_most
from bench.scale import Scale

HEADING = "A store of tasks as it grows"

_SIZES = (100, 10_000, 100_000)
_FINISHES = 100
_ABOUT = (
    "Each store has this many finished tasks, none of which may be removed yet. The first column "
    "is the first query of a new process; then the CPU time of one more task that finishes; then "
    "all of them removed, while other changes wait at most for one of the transactions."
)


class Grown(NamedTuple):
    """What one store took."""

    tasks: int
    open_ms: float
    finish_ms: float
    """CPU time."""
    remove_s: float


def measure(scale: Scale) -> Section:
    """Measure stores of several sizes."""
    sizes = [min(size, scale.calls * 40) for size in _SIZES]
    with Workspace() as workspace:
        grown = [asyncio.run(_grow(workspace.path / str(size), size)) for size in sizes]
    rows = [
        (f"{one.tasks:,}", f"{one.open_ms:.1f}", f"{one.finish_ms:.2f}", f"{one.remove_s:.2f}")
        for one in grown
    ]
    heads = ("finished tasks", "open, ms", "finish one more, CPU ms", "remove all, s")
    return Section(notes=[_ABOUT], tables=[Table("", heads, rows)], budgets=budgets(grown))


def budgets(grown: Sequence[Grown]) -> list[Budget]:
    """The promises, and whether they were kept."""
    least, most = grown[0], grown[-1]
    ratio = most.finish_ms / least.finish_ms
    return [
        at_most(f"a finish at {most.tasks:,} tasks, beside {least.tasks:,}", ratio, 2, "x"),
        at_most(f"to open a store of {most.tasks:,} tasks", most.open_ms, 50, " ms"),
    ]


async def _grow(folder: Path, count: int) -> Grown:
    from portico.library.tasks.store.record import COMPLETED, STORE_FILE
    from portico.library.tasks.store.store import TaskStore, tasks_in_folder

    async def finish(store: TaskStore) -> float:
        task = await store.adopt("local", "tool", b"{}", "bench")
        assert task.lease is not None
        began = time.process_time()
        await store.finish(task.lease, COMPLETED, b"{}")
        return time.process_time() - began

    store = tasks_in_folder(str(folder))
    await finish(store)
    await store.close()
    _multiply(os.path.join(folder, STORE_FILE), count)
    store = tasks_in_folder(str(folder))
    began = time.perf_counter()
    await store.get("local", "none")
    opened = time.perf_counter() - began
    finishes = [await finish(store) for _ in range(_FINISHES)]
    began = time.perf_counter()
    await store.remove_finished("local")
    removed = time.perf_counter() - began
    await store.close()
    return Grown(count, opened * 1000, median(finishes) * 1000, removed)


def _multiply(path: str, count: int) -> None:
    """Add copies of the one finished task."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
            "INSERT INTO tasks (id, finished_at, principal, kind, place, state, open, "
            "expires_at, record) SELECT 'task-' || i, finished_at - i * 0.001, principal, kind, "
            "place, state, open, expires_at, record FROM n, tasks",
            (count,),
        )
        database.execute(
            "INSERT INTO payloads SELECT tasks.id, name, data, file, digest FROM payloads, tasks "
            "WHERE tasks.id LIKE 'task-%' AND tasks.id != payloads.task"
        )
