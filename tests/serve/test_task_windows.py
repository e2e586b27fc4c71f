"""Tasks outlive the windows that requested them, and an owner outlives its last window for them."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from portico.core.model.context import LOCAL
from portico.core.model.defaults import LEASE_S
from portico.library.tasks.store.record import CANCELLED, COMPLETED, INTERRUPTED, QUEUED
from tests.serve.gateway import command
from tests.serve.task_windows import EFFECTS, TaskWindow, TaskWindows, all_gone, every
from tests.serve.test_windows import SERVER, closed, killed_with_all_it_started
from tests.support.running import WAIT_S
from tests.support.task_runners import seen
from tests.wrap.faults import alive, until

pytestmark = pytest.mark.slow


@pytest.fixture
def windows(tmp_path: Path) -> Iterator[TaskWindows]:
    with all_gone(TaskWindows(tmp_path)) as made:
        yield made


def portico(windows: TaskWindows, *words: str) -> str:
    """The output of a command, which must succeed."""
    done = subprocess.run(
        [sys.executable, "-m", "portico", *words, "--config", str(windows.config)],
        env={**os.environ, "PORTICO_HOME": str(windows.home), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def started(windows: TaskWindows, count: int) -> None:
    """Wait until this many effects have begun."""
    assert until(lambda: len(windows.entries("start")) >= count), "no task runs"


# Two windows.


@pytest.mark.parametrize("ended", [closed, killed_with_all_it_started])
@pytest.mark.parametrize("modern", [False, True])
def test_work_outlives_the_window_that_started_the_gateway(
    windows: TaskWindows, ended: Callable[[TaskWindow], None], modern: bool
) -> None:
    first, other = windows.open(modern=not modern), windows.open(modern=modern)
    gate = windows.folder / "gate"
    tasks = [window.submitted("gated", gate=str(gate)) for window in (first, other)]
    started(windows, 2)
    owner = windows.owner()
    ended(first)
    assert [other.about(task)["status"] for task in tasks] == ["working"] * 2
    gate.touch()
    text = f"passed {gate}"
    assert all(text in str(other.outcome(task)) for task in tasks)
    assert windows.count("start") == windows.count("end") == dict.fromkeys(tasks, 1)
    assert windows.owner() == owner
    assert other.stderr() == ""


async def test_an_owner_stays_for_a_task_after_its_last_window_and_then_leaves(
    windows: TaskWindows,
) -> None:
    window, gate = windows.open(), windows.folder / "gate"
    task = window.submitted("gated", gate=str(gate))
    started(windows, 1)
    owner = windows.owner()
    closed(window)
    assert alive({owner})
    shown = portico(windows, "status")
    assert f"process {owner}" in shown
    assert "1 task running" in shown
    assert "window" not in shown.splitlines()[0]
    gate.touch()
    assert until(lambda: not windows.processes()), "the owner stays"
    later = windows.open(modern=False)
    assert f"passed {gate}" in str(later.outcome(task))
    assert windows.count("end") == {task: 1}


async def test_an_owner_whose_last_task_is_cancelled_leaves(windows: TaskWindows) -> None:
    window = windows.open()
    task = window.submitted("gated", gate=str(windows.folder / "never"))
    started(windows, 1)
    closed(window)
    store = windows.store()
    await store.cancel(LOCAL, task)
    assert (await seen(store, task, lambda task: task.is_finished)).state is CANCELLED
    assert until(lambda: not windows.processes()), "the owner stays"
    assert windows.count("end") == {}
    await store.close()


async def test_tasks_that_wait_are_run_before_an_owner_leaves(windows: TaskWindows) -> None:
    window = windows.open()
    tasks = [window.submitted("effect", number=number, ms=50) for number in range(40)]
    closed(window)
    assert until(lambda: not windows.processes()), "the owner stays"
    assert windows.count("end") == dict.fromkeys(tasks, 1)


# Stops.


def by_command(windows: TaskWindows) -> None:
    """As `portico stop` does, which returns when the owner has ended."""
    portico(windows, "stop")


def by_signal(windows: TaskWindows) -> None:
    """As the system does at its end."""
    owner = windows.owner()
    os.kill(owner, signal.SIGTERM)
    assert until(lambda: not alive({owner})), "the owner stays"


def promoting(folder: Path, drain: float) -> TaskWindows:
    """A gateway whose child has a slow tool: its calls become tasks.

    The lease outlasts a pause of the stopping owner: the next one is there while it drains.
    """
    words = [sys.executable, str(SERVER), str(folder / "starts")]
    slow = command(words, sync_budget_s=0.2)
    lasting = {"lease_s": LEASE_S}
    return TaskWindows(folder, servers={"slow": slow}, gateway={"drain": drain}, tasks=lasting)


def promoted(window: TaskWindow, seconds: float) -> str:
    """Call the slow tool; the id of the task that the call becomes."""
    call = {"name": "slow__work", "arguments": {"seconds": seconds}}
    result = window.answer_to(window.begin("tools/call", **call))["result"]
    task: str = result["taskId"]
    return task


@pytest.mark.parametrize("stopped", [by_command, by_signal])
async def test_a_stop_waits_for_a_promoted_call(
    tmp_path: Path, stopped: Callable[[TaskWindows], None]
) -> None:
    with all_gone(promoting(tmp_path, drain=60)) as windows:
        window = windows.open()
        task = promoted(window, 1.5)
        stopped(windows)
        store = windows.store()
        assert (await every(store))[task].state is COMPLETED
        await store.close()
        assert "worked 1.5 s" in str(window.outcome(task))


@pytest.mark.parametrize("stopped", [by_command, by_signal])
async def test_a_stop_interrupts_a_promoted_call_after_the_drain_and_says_why(
    tmp_path: Path, stopped: Callable[[TaskWindows], None]
) -> None:
    with all_gone(promoting(tmp_path, drain=0.5)) as windows:
        window = windows.open()
        task = promoted(window, 1.5)
        stopped(windows)
        store = windows.store()
        assert (await every(store))[task].state is INTERRUPTED
        reason = "interrupted: the process that ran the task was stopped before the task ended"
        assert reason in str(window.outcome(task))
        new = await store.resume(LOCAL, task)
        assert new is not None
        assert (await seen(store, new.id, lambda task: task.is_finished)).state is COMPLETED
        assert "worked 1.5 s" in str(window.outcome(new.id))
        await store.close()


async def test_a_stop_hands_waiting_tasks_to_the_next_owner(windows: TaskWindows) -> None:
    window, gate = windows.open(), windows.folder / "gate"
    tasks = [window.submitted("gated", gate=str(gate)) for _ in range(12)]
    started(windows, 8)
    owner = windows.owner()
    os.kill(owner, signal.SIGTERM)
    started(windows, 12)
    assert len({entry.process for entry in windows.entries("start")}) == 2
    gate.touch()
    assert all(f"passed {gate}" in str(window.outcome(task)) for task in tasks)
    assert windows.count("start") == windows.count("end") == dict.fromkeys(tasks, 1)
    assert until(lambda: not alive({owner})), "the owner stays"


# Two gateways.


async def test_gateways_of_two_configs_share_a_store_and_run_their_own_tasks(
    tmp_path: Path,
) -> None:
    one, two = TaskWindows(tmp_path, "one"), TaskWindows(tmp_path, "two")
    with all_gone(one), two.stack:
        window, other = one.open(), two.open()
        gate = tmp_path / "gate"
        tasks = [window.submitted("gated", gate=str(gate)) for _ in range(12)]
        started(one, 8)
        first = {entry.process for entry in one.entries("start")}
        window.process.kill()
        for pid in first:
            os.kill(pid, signal.SIGKILL)
        its_own = other.submitted("effect", number=1, ms=1)
        assert "effect 1" in str(other.outcome(its_own))
        store = one.store()
        begun = {entry.task for entry in one.entries("start")} - {its_own}
        for id in begun:  # the other gateway finds that their process has ended
            assert (await seen(store, id, lambda task: task.is_finished)).state is INTERRUPTED
        waiting = set(tasks) - begun
        assert len(waiting) == 4
        again = other.submitted("effect", number=2, ms=1)
        assert "effect 2" in str(other.outcome(again))
        found = await every(store)
        assert {str(found[id].state) for id in waiting} == {QUEUED}
        gate.touch()
        late = one.open()
        assert all(f"passed {gate}" in str(late.outcome(id)) for id in waiting)
        ran = {entry.process for entry in one.entries("start") if entry.task in waiting}
        assert len(ran) == 1
        assert ran.isdisjoint(
            {entry.process for entry in one.entries("start") if entry.task == again}
        )
        await store.close()


# A new gateway.


SLOW = """
import time

time.sleep(1.5)  # longer than a gateway waits before it looks for tasks
exec(open({path!r}).read())
"""


async def test_tasks_wait_for_a_component_that_starts_slowly(tmp_path: Path) -> None:
    slow = tmp_path / "slow.py"
    slow.write_text(SLOW.format(path=str(EFFECTS)))
    entry = {"path": str(slow), "in_process": True}
    with all_gone(TaskWindows(tmp_path, "portico", **{"components.effects": entry})) as windows:
        window = windows.open()
        tasks = [window.submitted("gated", gate=str(tmp_path / "gate")) for _ in range(10)]
        started(windows, 8)
        window.process.kill()
        os.kill(windows.owner(), signal.SIGKILL)
        shutil.rmtree(windows.home / "cache", ignore_errors=True)  # nothing is known then
        (tmp_path / "gate").touch()
        again = windows.open(modern=False)
        outcomes = [str(again.outcome(task)) for task in tasks]
        assert sum("passed" in outcome for outcome in outcomes) >= 2, outcomes
        assert all("passed" in text or "interrupted: " in text for text in outcomes), outcomes
