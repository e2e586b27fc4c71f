"""No accepted task is lost, and none has its effect twice, whatever is killed."""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

import pytest

from portico.core.model.context import LOCAL
from portico.library.tasks.store.record import COMPLETED, INTERRUPTED, TaskRecord
from portico.library.tasks.store.store import TaskStore
from tests.serve.kill_storm import KillStorm
from tests.serve.task_windows import TaskWindow, TaskWindows, all_gone, every
from tests.support.running import WAIT_S
from tests.support.soak import times
from tests.wrap.faults import until

pytestmark = pytest.mark.slow

TASKS, KILLS = times(500, 5000), times(10, 50)
PICK_UP_S = 4 * (1.25 * 1 + 0.5)
"""The promise is 1.25 leases and 0.5 s, and a lease is 1 s here; a busy machine is slow."""
LONGEST_MS, AT_ONCE = 60, 8
REASON = "interrupted: the process that ran the task ended before the task did"


class Storm(KillStorm[TaskWindow, int]):
    """Clients whose tasks have numbered effects."""

    def __init__(self, windows: TaskWindows, seed: int) -> None:
        super().__init__(lambda modern: windows.open(modern=modern), seed)
        self.windows = windows
        self.killed: list[float] = []
        """When owners were killed."""

    def submit(self, count: int) -> None:
        """Send calls through any of the windows."""
        for _ in range(count):
            window, number = self.random.choice(self.open), self.count
            ms = self.random.randrange(5, LONGEST_MS)
            self.sent.append((window, window.submit("effect", number=number, ms=ms), number))
            self.count += 1

    def kill(self, what: str) -> None:
        """Kill the owner, or a window, while tasks run."""
        begun = len(self.windows.entries("start"))
        enough = begun + self.random.randrange(1, 12)
        assert until(lambda: len(self.windows.entries("start")) >= enough), "no task runs"
        if what == "owner":
            os.kill(self.windows.owner(), signal.SIGKILL)
            self.killed.append(time.time())
            return
        self.kill_window()


async def finished(store: TaskStore) -> dict[str, TaskRecord]:
    """Wait until every task has ended; return them all."""
    async with asyncio.timeout(WAIT_S):
        while True:
            found = await every(store)
            if all(task.is_finished for task in found.values()):
                return found
            await asyncio.sleep(0.05)


def read(window: TaskWindow, tasks: list[str]) -> dict[str, Any]:
    """What a client reads of tasks that have ended."""
    kept = ("status", "statusMessage", "result", "error", "createdAt", "lastUpdatedAt")
    found = {}
    for place in range(0, len(tasks), 100):  # requests of one client at once are limited
        some = tasks[place : place + 100]
        for task, id in [(task, window.begin("tasks/get", taskId=task)) for task in some]:
            answer = window.answer_to(id)
            assert "result" in answer, answer
            found[task] = {key: answer["result"].get(key) for key in kept}
    return found


def picked_up(
    windows: TaskWindows, tasks: dict[str, TaskRecord], kills: list[float]
) -> list[float]:
    """After each kill, how long the queued tasks waited that got a place first; others wait for
    these."""
    starts = sorted(windows.entries("start"), key=lambda entry: entry.at)
    waits: list[float] = []
    for at, following in pairwise([*kills, inf]):
        queued = [one for one in starts if tasks[one.task].created_at < at < one.at < following]
        waits += (one.at - at for one in queued[:AT_ONCE])
    return waits


@pytest.mark.soak
@pytest.mark.timeout(times(300, 3600))
async def test_every_accepted_task_ends_once_whichever_process_is_killed(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    with all_gone(TaskWindows(tmp_path)) as windows:
        storm = Storm(windows, seed=15)
        kills = ["owner"] * (KILLS * 6 // 10) + ["window"] * (KILLS - KILLS * 6 // 10)
        storm.random.shuffle(kills)
        share = TASKS // KILLS
        for what in kills:
            before = storm.random.randrange(share // 2, share)
            storm.submit(before)
            storm.kill(what)
            storm.submit(share - before)
            storm.collect()
        while len(storm.accepted) < TASKS:  # a kill takes the answers that are on their way
            storm.submit(min(share, TASKS - len(storm.accepted)))
            storm.collect()
        store = windows.store()
        tasks = await finished(store)

        assert storm.accepted.keys() <= tasks.keys(), "an accepted task vanished"
        assert {task.state for task in tasks.values()} <= {COMPLETED, INTERRUPTED}
        begun, ended = windows.count("start"), windows.count("end")
        assert max(begun.values()) == max(ended.values()) == 1
        assert begun.keys() <= tasks.keys()
        assert windows.most_at_once() <= AT_ONCE
        completed = {id for id, task in tasks.items() if task.state is COMPLETED}
        assert completed <= ended.keys()

        reader = next(window for window in storm.open if window.modern)
        first = read(reader, [*storm.accepted])
        for id, number in storm.accepted.items():
            if id in completed:
                assert first[id]["result"]["content"][0]["text"] == f"effect {number}"
            else:
                assert first[id]["status"] == "failed"
                assert first[id]["error"]["message"] == REASON

        interrupted = [id for id in tasks if id not in completed]
        assert interrupted, "no kill met a running task"
        assert len(interrupted) <= AT_ONCE * len(storm.killed)
        resumed = [await store.resume(LOCAL, id) for id in interrupted[:20]]
        tasks = await finished(store)
        for new in resumed:
            assert new is not None
            assert tasks[new.id].state is COMPLETED
            assert windows.count("end")[new.id] == 1
        assert read(reader, [*storm.accepted]) == first, "a result has changed"

        waits = picked_up(windows, tasks, storm.killed)
        assert waits, "no task was queued at a kill"
        longest = max(waits)
        assert longest < PICK_UP_S
        for id in interrupted:
            at = max(at for at in storm.killed if at < (tasks[id].finished_at or 0))
            assert (tasks[id].finished_at or 0) - at < PICK_UP_S
        await store.close()
    done = f"{len(storm.accepted)} tasks accepted, {len(interrupted)} interrupted by {KILLS} kills"
    record_property("soak", f"{done}, none lost or repeated, picked up within {longest:.1f} s")
