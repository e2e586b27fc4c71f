"""The contract of the task store, in memory and in a file."""

import asyncio
import math
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from portico.library.tasks.store import rows
from portico.library.tasks.store.record import (
    CANCELLED,
    COMPLETED,
    FAILED,
    FINISHED,
    INPUT_REQUIRED,
    INTERRUPTED,
    QUEUED,
    RUNNING,
    STARTING,
    Clocks,
    NotAccepted,
    TaskLimits,
    TaskRecord,
    agent_principal,
)
from portico.library.tasks.store.store import TaskStore, tasks_in_folder
from tests.support.running import WAIT_S
from tests.support.task_stores import OpenStore, SetClocks, claimed, opener, running

ME, OTHER = "local", "other"
DAY_S = 86400.0


async def test_a_submitted_task_is_stored(opened: OpenStore, now: SetClocks) -> None:
    async with opened() as store:
        task = await store.submit(ME, "tool", b"input", ttl_s=60)
        assert await store.get(ME, task.id) == task
        assert (task.state, task.created_at, task.ttl_s) == (QUEUED, now.wall, 60)
        assert await store.input(task) == b"input"
        assert await store.result(task) is None


async def test_ids_and_keys_differ_and_cannot_be_guessed(opened: OpenStore) -> None:
    async with opened() as store:
        tasks = [await store.submit(ME, "tool", b"") for _ in range(50)]
        assert len({task.id for task in tasks} | {task.idempotency_key for task in tasks}) == 100
        assert all(len(task.id) >= 32 for task in tasks)


async def test_unknown_expired_and_foreign_tasks_are_all_none(
    opened: OpenStore, now: SetClocks
) -> None:
    async with opened() as store:
        expired = await store.submit(ME, "tool", b"", ttl_s=1)
        _, lease = await running(store)
        await store.finish(lease, COMPLETED, b"")
        now.advance(10_000)
        foreign = await store.submit(OTHER, "tool", b"")
        for id in (expired.id, foreign.id, "unknown", "", "x" * 1_000_000, "\ud800", "\0"):
            assert await store.get(ME, id) is None
            assert await store.find(ME, id) is None
            assert await store.cancel(ME, id) is None
            assert await store.answer(ME, id, {"key": b""}) is None
            assert await store.resume(ME, id) is None
        assert await store.get(OTHER, foreign.id) == foreign


async def test_the_tasks_of_agents_are_found_below_the_task_that_they_work_on(
    opened: OpenStore, now: SetClocks
) -> None:
    async with opened() as store:
        root, other = [await store.submit(one, "tool", b"") for one in (ME, OTHER)]
        child = await store.submit(agent_principal(root.id), "tool", b"")
        second = await store.submit(agent_principal(root.id), "tool", b"")
        grandchild = await store.submit(agent_principal(child.id), "tool", b"")
        stray = await store.submit(agent_principal("unknown"), "tool", b"")
        assert (root.parent, child.parent, grandchild.parent) == ("", root.id, child.id)
        for task in (root, child, second, grandchild):
            assert await store.find(ME, task.id) == task
            assert await store.find(OTHER, task.id) is None
        assert await store.find(agent_principal(root.id), grandchild.id) == grandchild
        assert await store.find(agent_principal(root.id), root.id) is None
        for stranger in (other, stray):
            assert await store.find(ME, stranger.id) is None
        assert await store.get(ME, child.id) is None
        newer = await store.submit(ME, "tool", b"")
        listed = [(0, newer), (0, root), (1, child), (2, grandchild), (1, second)]
        assert await store.with_nested([newer, root]) == listed


async def test_an_agents_task_that_has_expired_is_not_found(
    opened: OpenStore, now: SetClocks
) -> None:
    async with opened() as store:
        root = await store.submit(ME, "other", b"")
        child = await store.submit(agent_principal(root.id), "tool", b"", ttl_s=1)
        _, lease = await running(store)
        await store.finish(lease, COMPLETED, b"")
        now.advance(10_000)
        assert await store.find(ME, child.id) is None
        assert await store.with_nested([root]) == [(0, root)]


@pytest.mark.parametrize(
    "given, kept",
    [(None, 100.0), (0, 0.0), (-1, 0.0), (1e18, 100.0), (math.inf, 100.0), (math.nan, 0.0)],
)
async def test_a_ttl_is_kept_within_its_limits(
    opened: OpenStore, given: float | None, kept: float
) -> None:
    async with opened(TaskLimits(max_ttl_s=100)) as store:
        assert (await store.submit(ME, "tool", b"", ttl_s=given)).ttl_s == kept


async def test_pages_show_every_task_once_newest_first(opened: OpenStore) -> None:
    async with opened() as store:
        ids = [(await store.submit(ME, "tool", b"")).id for _ in range(25)]
        await store.submit(OTHER, "tool", b"")
        found, cursor = [], None
        while True:
            page = await store.page(ME, 10, cursor)
            assert page is not None
            found += [task.id for task in page.tasks]
            await store.submit(ME, "tool", b"")  # newer tasks do not move the rest
            cursor = page.cursor
            if cursor is None:
                break
        assert found == ids[::-1]


@pytest.mark.parametrize("cursor", ["", "x", "-1", "9" * 30, "٣", "1.0"])
async def test_a_wrong_cursor_is_not_a_page(opened: OpenStore, cursor: str) -> None:
    async with opened() as store:
        await store.submit(ME, "tool", b"")
        assert await store.page(ME, 10, cursor) is None


async def test_workers_get_the_oldest_task_of_their_kinds_each_once(opened: OpenStore) -> None:
    async with opened() as store:
        tasks = [await store.submit(ME, kind, b"") for kind in ("a", "b", "a", "c")]
        got = [await store.claim("worker", ("a", "b")) for _ in range(4)]
        assert [task and task.id for task in got] == [*(task.id for task in tasks[:3]), None]
        assert got[0] is not None
        assert got[0].state is STARTING
        assert got[0].lease is not None
        assert got[0].lease.owner == "worker"


async def test_a_finished_task_has_its_result_and_never_changes(opened: OpenStore) -> None:
    async with opened() as store:
        await store.submit(ME, "tool", b"")
        _, lease = await running(store)
        done = await store.finish(lease, COMPLETED, b"result", "done", {"tokens": 3})
        assert done is not None
        assert (done.state, done.message, done.usage) == (COMPLETED, "done", {"tokens": 3})
        assert await store.finish(lease, FAILED, b"other") is None
        assert await store.progress(lease, "late") is None
        assert await store.ask(lease, [b"late?"]) is None
        assert await store.renew(lease) is None
        assert await store.begin(lease) is None
        assert await store.take_answers(lease) is None
        assert await store.cancel(ME, done.id) == done
        assert await store.answer(ME, done.id, {"key": b""}) == done
        assert await store.recover() == []
        assert await store.get(ME, done.id) == done
        assert await store.result(done) == b"result"


async def test_only_finished_states_finish_a_task(opened: OpenStore) -> None:
    async with opened() as store:
        await store.submit(ME, "tool", b"")
        _, lease = await running(store)
        with pytest.raises(ValueError, match="running"):
            await store.finish(lease, RUNNING)
        with pytest.raises(NotAccepted, match="the task is running: it has begun already"):
            await store.begin(lease)


async def test_progress_sets_the_message_and_keeps_the_newest_events(opened: OpenStore) -> None:
    async with opened(TaskLimits(events=3, text=5)) as store:
        await store.submit(ME, "tool", b"")
        task, lease = await running(store)
        for number in range(5):
            await store.progress(lease, f"step {number}" if number < 4 else "\ud800")
        told = await store.get(ME, task.id)
        assert told is not None
        assert told.message == "?"
        events = await store.events(task)
        assert [(event.number, event.text) for event in events] == [
            (3, "step "),
            (4, "step "),
            (5, "?"),
        ]


async def test_a_task_runs_on_when_its_last_question_is_answered(opened: OpenStore) -> None:
    async with opened() as store:
        await store.submit(ME, "tool", b"")
        task, lease = await running(store)
        asking = await store.ask(lease, [b"name?", b"age?"])
        assert asking is not None
        assert asking.state is INPUT_REQUIRED
        first, second = (question.key for question in asking.pending)
        partly = await store.answer(ME, task.id, {first: b"Ann", "unknown": b"x"})
        assert partly is not None
        assert (partly.state, [each.body for each in partly.pending]) == (INPUT_REQUIRED, [b"age?"])
        assert await store.take_answers(lease) == {first: b"Ann"}
        fully = await store.answer(ME, task.id, {first: b"late", second: b"7"})
        assert fully is not None
        assert (fully.state, fully.pending) == (RUNNING, ())
        assert await store.take_answers(lease) == {second: b"7"}
        assert await store.take_answers(lease) == {}


async def test_the_first_answer_wins_and_keys_are_never_reused(opened: OpenStore) -> None:
    async with opened() as store:
        await store.submit(ME, "tool", b"")
        task, lease = await running(store)
        keys = []
        for _ in range(5):
            asking = await store.ask(lease, [b"sure?"])
            assert asking is not None
            keys.append(asking.pending[0].key)
            await store.answer(ME, task.id, {keys[-1]: b"yes"})
            await store.answer(ME, task.id, {keys[-1]: b"no"})
            assert await store.take_answers(lease) == {keys[-1]: b"yes"}
        assert len(set(keys)) == 5


async def test_questions_and_answers_are_bounded(opened: OpenStore) -> None:
    async with opened(TaskLimits(questions=2, max_question=10)) as store:
        await store.submit(ME, "tool", b"")
        task, lease = await running(store)
        with pytest.raises(NotAccepted, match="at most 2 questions"):
            await store.ask(lease, [b"?"] * 3)
        with pytest.raises(NotAccepted, match="a question exceeds the limit of 10 bytes"):
            await store.ask(lease, [b"?" * 11])
        assert await store.get(ME, task.id) == task
        asked = await store.ask(lease, [b"?"])
        assert asked is not None
        (question,) = asked.pending
        with pytest.raises(NotAccepted, match="an answer exceeds the limit of 10 bytes"):
            await store.answer(ME, task.id, {question.key: b"." * 11})
        assert await store.answer(ME, task.id, {"unknown": b"." * 11}) == asked
        assert await store.get(ME, task.id) == asked


async def test_a_queued_task_is_cancelled_at_once(opened: OpenStore) -> None:
    async with opened() as store:
        task = await store.submit(ME, "tool", b"")
        cancelled = await store.cancel(ME, task.id)
        assert cancelled is not None
        assert cancelled.state is CANCELLED
        assert await store.claim("worker", ("tool",)) is None


async def test_the_worker_of_a_task_sees_the_request_to_cancel_it(opened: OpenStore) -> None:
    async with opened() as store:
        await store.submit(ME, "tool", b"")
        task, lease = await running(store)
        requested = await store.cancel(ME, task.id)
        assert requested is not None
        assert requested.state is RUNNING
        renewed = await store.renew(lease)
        assert renewed is not None
        assert renewed.is_cancel_requested
        done = await store.finish(lease, CANCELLED)
        assert done is not None
        assert done.state is CANCELLED


async def test_a_lost_worker_interrupts_a_task_that_had_begun(
    opened: OpenStore, now: SetClocks
) -> None:
    async with opened() as store:
        queued, begun = [await store.submit(ME, kind, b"") for kind in ("a", "b")]
        await claimed(store, "a")
        _, lease = await running(store, "b")
        now.advance(14.9)
        assert await store.recover() == []
        now.advance(0.2)
        assert [(task.id, task.state) for task in await store.recover()] == [
            (queued.id, QUEUED),
            (begun.id, INTERRUPTED),
        ]
        assert await store.finish(lease, COMPLETED, b"late") is None
        lost = await store.get(ME, begun.id)
        assert lost is not None
        assert lost.message.startswith("interrupted: the process that ran the task ended")
        assert await store.result(lost) is None


async def test_a_repeatable_task_is_started_again_but_not_forever(
    opened: OpenStore, now: SetClocks
) -> None:
    async with opened(TaskLimits(starts=3)) as store:
        task = await store.submit(ME, "tool", b"", is_repeatable=True)
        states = []
        for _ in range(3):
            _, late = await running(store)
            await store.ask(late, [b"sure?"])
            now.advance(20)
            states += [task.state for task in await store.recover()]
            assert await store.finish(late, COMPLETED, b"late") is None
        assert states == [QUEUED, QUEUED, INTERRUPTED]
        ended = await store.get(ME, task.id)
        assert ended is not None
        assert ended.questions == ()


async def test_a_lost_task_that_was_to_be_cancelled_is(opened: OpenStore, now: SetClocks) -> None:
    async with opened() as store:
        task = await store.submit(ME, "tool", b"")
        await running(store)
        await store.cancel(ME, task.id)
        now.advance(20)
        assert [task.state for task in await store.recover()] == [CANCELLED]


async def test_a_renewed_lease_does_not_expire(opened: OpenStore, now: SetClocks) -> None:
    async with opened() as store:
        await store.submit(ME, "tool", b"")
        _, lease = await running(store)
        for _ in range(5):
            now.advance(10)
            assert await store.renew(lease) is not None
            assert await store.recover() == []


async def test_a_lease_that_is_renewed_during_a_recovery_is_kept(
    tmp_path: Path, now: SetClocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_reading, is_renewed, read_leased = Event(), Event(), rows.leased

    def read_late(db: sqlite3.Connection) -> Iterator[TaskRecord]:
        is_reading.set()
        assert is_renewed.wait(WAIT_S)
        return read_leased(db)

    async with opener("file", tmp_path, now)() as store:
        await store.submit(ME, "tool", b"")
        _, lease = await running(store)
        monkeypatch.setattr(rows, "leased", read_late)
        reading = asyncio.ensure_future(store.in_progress())
        assert await asyncio.to_thread(is_reading.wait, WAIT_S)
        recovering = asyncio.ensure_future(store.recover())  # it reads after the other
        await asyncio.sleep(0)
        now.advance(1)
        assert await store.renew(lease) is not None
        is_renewed.set()
        assert len(await reading) == 1
        assert await recovering == []


async def test_an_expired_lease_counts_until_another_worker_has_the_task(
    opened: OpenStore, now: SetClocks
) -> None:
    async with opened() as store:
        await store.submit(ME, "tool", b"")
        _, lease = await running(store)
        now.advance(100)
        assert await store.finish(lease, COMPLETED, b"slow") is not None


@pytest.mark.parametrize("jump", [1e9, 3600, -3600, -1e9])
async def test_a_clock_that_jumps_ends_no_lease_and_doubles_no_work(
    opened: OpenStore, now: SetClocks, jump: float
) -> None:
    async with opened() as store:
        await store.submit(ME, "tool", b"", ttl_s=60)
        task, lease = await running(store)
        now.wall += jump
        assert await store.recover() == []
        assert await store.claim("second", ("tool",)) is None
        assert await store.prune() == 0
        done = await store.finish(lease, COMPLETED, b"result")
        assert done is not None
        assert await store.get(ME, task.id) == done
        assert done.created_at <= done.updated_at


async def test_a_clock_that_jumps_ahead_and_back_removes_nothing(
    opened: OpenStore, now: SetClocks
) -> None:
    async with opened() as store:
        await store.submit(ME, "tool", b"", ttl_s=60)
        task, lease = await running(store)
        await store.finish(lease, COMPLETED, b"result")
        now.wall += 1e9
        assert await store.prune() == 0
        now.wall -= 1e9
        assert await store.prune() == 0
        assert await store.get(ME, task.id) is not None


async def test_a_clock_that_stays_ahead_is_believed_after_a_day(
    opened: OpenStore, now: SetClocks
) -> None:
    async with opened() as store:
        await completed(store, ttl_s=60)
        now.wall += 31 * DAY_S
        for _ in range(23):
            assert await store.prune() == 0
            now.advance(3600)
        assert await store.prune() == 0
        now.advance(3601)
        assert await store.prune() == 1


async def test_time_that_passes_while_a_store_is_open_is_believed(
    opened: OpenStore, now: SetClocks
) -> None:
    async with opened() as store:
        await completed(store, ttl_s=60)
        now.advance(31 * DAY_S)
        assert await store.prune() == 1


async def test_a_start_with_a_clock_that_is_ahead_removes_nothing_for_a_day(
    tmp_path: Path, now: SetClocks
) -> None:
    opened = opener("file", tmp_path, now)
    async with opened() as store:
        old = await completed(store)
    now.wall += 31 * DAY_S
    now.steady = 10.0  # the system has started again
    for _ in range(3):  # and so has Portico
        async with opened() as store:
            new = await completed(store)  # by the wrong clock
            assert await store.prune() == 0
            now.advance(600)
    now.wall -= 31 * DAY_S
    async with opened() as store:
        assert await store.prune() == 0
        found = [await store.get(ME, task.id) for task in (old, new)]
        assert None not in found


@pytest.mark.parametrize("away_s", [0.9 * DAY_S, 3 * DAY_S])
async def test_a_start_after_a_long_time_removes_old_tasks_a_day_later(
    tmp_path: Path, now: SetClocks, away_s: float
) -> None:
    opened = opener("file", tmp_path, now)
    async with opened() as store:
        await completed(store, ttl_s=60)
    now.advance(away_s)
    async with opened() as store:
        assert await store.prune() == (1 if away_s < DAY_S else 0)
    now.advance(3600)
    async with opened() as store:  # another process has looked meanwhile
        assert await store.prune() == 0
        now.advance(DAY_S)
        assert await store.prune() == (0 if away_s < DAY_S else 1)


async def test_a_suspended_system_is_no_doubt_about_its_clock(tmp_path: Path) -> None:
    now = SetClocks()
    uptime = [100.0]
    clocks = Clocks(lambda: now.wall, lambda: now.steady, lambda: uptime[0])
    store = tasks_in_folder(str(tmp_path), clocks=clocks)
    await completed(store, ttl_s=60)
    now.wall += 8 * 3600
    uptime[0] += 8 * 3600
    assert await store.prune() == 1
    await store.close()


async def test_a_lease_from_before_a_restart_of_the_system_has_expired(
    opened: OpenStore, now: SetClocks
) -> None:
    async with opened() as store:
        await store.submit(ME, "tool", b"")
        await running(store)
        now.steady = 3.0
        assert [task.state for task in await store.recover()] == [INTERRUPTED]


async def test_finished_tasks_expire_by_age_but_are_kept_for_a_while(
    opened: OpenStore, now: SetClocks
) -> None:
    async with opened(TaskLimits(grace_s=300)) as store:
        await store.submit(ME, "tool", b"", ttl_s=0)
        task, lease = await running(store)
        now.advance(10_000)
        assert await store.prune() == 0
        assert await store.get(ME, task.id) == task
        await store.finish(lease, COMPLETED, b"result")
        now.advance(299)
        assert await store.get(ME, task.id) is not None
        now.advance(2)
        assert await store.get(ME, task.id) is None
        page = await store.page(ME)
        assert page is not None
        assert page.tasks == []
        assert [await store.prune(), await store.prune()] == [1, 0]


async def completed(store: TaskStore, kind: str = "tool", ttl_s: float | None = None) -> TaskRecord:
    """A task that was submitted and has ended."""
    await store.submit(ME, kind, b"", ttl_s)
    _, lease = await running(store, kind)
    done = await store.finish(lease, COMPLETED, b"")
    assert done is not None
    return done


async def listed(store: TaskStore) -> list[TaskRecord]:
    """All tasks, newest first."""
    page = await store.page(ME)
    assert page is not None
    return page.tasks


async def test_the_oldest_finished_tasks_make_room_and_no_other(
    opened: OpenStore, now: SetClocks
) -> None:
    async with opened(TaskLimits(kept=3, grace_s=300)) as store:
        first = await store.submit(ME, "stays", b"")
        for _ in range(6):
            await completed(store)
            now.advance(301)
        tasks = await listed(store)
        assert [task.state for task in tasks] == [COMPLETED] * 3 + [QUEUED]
        assert tasks[-1] == first


async def test_a_task_that_ran_for_long_stays_when_newer_ones_ended_before(
    opened: OpenStore, now: SetClocks
) -> None:
    async with opened(TaskLimits(kept=3, grace_s=300)) as store:
        task = await store.submit(ME, "tool", b"")
        _, lease = await running(store)
        newer = []
        for _ in range(3):
            newer.append(await completed(store))
            now.advance(1000)
        done = await store.finish(lease, COMPLETED, b"result")
        assert await store.get(ME, task.id) == done
        assert await store.result(task) == b"result"
        assert await store.get(ME, newer[0].id) is None  # it ended first
        now.advance(1000)
        last = await completed(store)
        assert {each.id for each in await listed(store)} == {task.id, newer[2].id, last.id}


async def test_a_task_makes_room_only_after_it_was_kept_for_a_while(
    opened: OpenStore, now: SetClocks
) -> None:
    async with opened(TaskLimits(kept=2, grace_s=300)) as store:
        for _ in range(5):
            await completed(store)
            now.advance(50)
        assert len(await listed(store)) == 5
        now.advance(300)
        await completed(store)
        assert len(await listed(store)) == 2


async def test_tasks_of_another_gateway_or_wrapped_server_do_not_make_room(
    opened: OpenStore, now: SetClocks
) -> None:
    async with opened(TaskLimits(kept=2, grace_s=300)) as store:
        kinds = ["call@gateway", "remote@gateway", "prompt@gateway"]
        for kind in (*kinds, "call@wrap:x", "remote@wrap:x", "call@wrap:y"):
            await completed(store, kind)
            now.advance(301)
        left = [task.kind for task in await listed(store)]
        assert left == ["call@wrap:y", "remote@wrap:x", "call@wrap:x", *reversed(kinds[1:])]


async def test_tasks_in_progress_are_limited_for_each_principal(opened: OpenStore) -> None:
    async with opened(TaskLimits(in_progress=2)) as store:
        task = await store.submit(ME, "tool", b"")
        await store.submit(ME, "tool", b"")
        with pytest.raises(NotAccepted, match=re.escape("task limit reached (2); wait")):
            await store.submit(ME, "tool", b"")
        await store.submit(OTHER, "tool", b"")
        await store.cancel(ME, task.id)
        assert (await store.submit(ME, "tool", b"")).state is QUEUED


async def test_tasks_in_progress_are_limited_at_each_place(opened: OpenStore) -> None:
    async with opened(TaskLimits(in_progress=2)) as store:
        first = await store.submit(ME, "tool", b"", place="rig@x")
        await store.adopt(ME, "remote", b"", "worker", place="rig@x")
        words = re.escape("task limit reached (2 for rig); wait")
        with pytest.raises(NotAccepted, match=words):
            await store.submit(ME, "tool", b"", place="rig@x")
        with pytest.raises(NotAccepted, match=words):
            await store.room(ME, "rig@x")
        assert await store.room(ME, "rig@y") == 2
        await store.submit(ME, "tool", b"", place="rig@y")
        await store.submit(ME, "tool", b"")
        await store.cancel(ME, first.id)
        resumed = await store.resume(ME, first.id)
        assert resumed is not None
        assert resumed.place == "rig@x"
        with pytest.raises(NotAccepted, match=words):
            await store.submit(ME, "tool", b"", place="rig@x")


async def test_a_worker_gets_no_task_of_a_kind_at_a_full_place(opened: OpenStore) -> None:
    async with opened() as store:
        for kind, place in (("a", "rig"), ("b", "rig"), ("a", 'x"y')):
            await store.submit(ME, kind, b"", place=place)
        full = [("a", "rig")]
        got = [await store.claim("worker", ("a", "b"), full=full) for _ in range(3)]
        assert [(task.kind, task.place) for task in got if task] == [("b", "rig"), ("a", 'x"y')]
        assert await store.claim("worker", ("a", "b"), full=[("a", 'x"y')]) is not None


async def test_a_limit_of_one_task_is_in_the_singular(opened: OpenStore) -> None:
    async with opened(TaskLimits(in_progress=1)) as store:
        await store.submit(ME, "tool", b"")
        with pytest.raises(NotAccepted, match=re.escape("task limit reached (1); wait")):
            await store.submit(ME, "tool", b"")


async def test_inputs_and_results_are_limited(opened: OpenStore) -> None:
    async with opened(TaskLimits(max_input=10, max_result=10)) as store:
        with pytest.raises(NotAccepted, match="the input exceeds the limit of 10 bytes"):
            await store.submit(ME, "tool", b"." * 11)
        task = await store.submit(ME, "tool", b"." * 10)
        _, lease = await running(store)
        with pytest.raises(NotAccepted, match="the result exceeds the limit of 10 bytes"):
            await store.finish(lease, COMPLETED, b"." * 11)
        assert await store.result(task) is None
        assert await store.finish(lease, FAILED) is not None


@pytest.mark.parametrize("state", sorted(FINISHED - {COMPLETED}))
async def test_an_unsuccessful_task_is_resumed_by_one_new_task(
    opened: OpenStore, state: str
) -> None:
    async with opened() as store:
        await store.submit(ME, "tool", b"input")
        _, lease = await running(store)
        old = await store.finish(lease, type(QUEUED)(state), message="why")
        assert old is not None
        new = await store.resume(ME, old.id)
        assert new is not None
        assert (new.state, new.resumes, new.kind) == (QUEUED, old.id, "tool")
        assert new.id != old.id
        assert new.idempotency_key == old.idempotency_key
        assert await store.input(new) == b"input"
        assert await store.resume(ME, old.id) == new
        assert await store.get(ME, old.id) == old


async def test_all_finished_tasks_of_one_principal_can_be_removed(opened: OpenStore) -> None:
    async with opened() as store:
        for principal in (ME, "other"):
            await store.submit(principal, "tool", b"x" * 100_000)
            _, lease = await running(store)
            await store.finish(lease, COMPLETED, b"")
        open_task = await store.submit(ME, "tool", b"")
        assert [await store.remove_finished(ME), await store.remove_finished(ME)] == [1, 0]
        page, others = await store.page(ME), await store.page("other")
        assert page is not None
        assert others is not None
        assert [task.id for task in page.tasks] == [open_task.id]
        assert [await store.input(task) for task in others.tasks] == [b"x" * 100_000]


async def test_a_running_or_completed_task_is_not_resumed(opened: OpenStore) -> None:
    async with opened() as store:
        await store.submit(ME, "tool", b"")
        task, lease = await running(store)
        with pytest.raises(NotAccepted, match="the task is running: only an unsuccessful one"):
            await store.resume(ME, task.id)
        await store.finish(lease, COMPLETED)
        with pytest.raises(NotAccepted, match="the task is completed"):
            await store.resume(ME, task.id)


async def test_a_listener_gets_the_changes_of_its_task_only(opened: OpenStore) -> None:
    async with opened() as store:
        task = await store.submit(ME, "tool", b"")
        with store.watch(task.id) as watch:
            _, lease = await running(store)
            await store.submit(ME, "tool", b"")
            await running(store)
            await store.renew(lease)
            await store.progress(lease, "half")
            await store.finish(lease, COMPLETED, b"")
            changes = [await watch.next() for _ in range(4)]
        assert {change.id for change in changes} == {task.id}
        assert [change.state for change in changes] == [STARTING, RUNNING, RUNNING, COMPLETED]
        assert changes[2].message == "half"


async def test_a_slow_listener_misses_old_changes_but_not_the_end(opened: OpenStore) -> None:
    async with opened() as store:
        task = await store.submit(ME, "tool", b"")
        with store.watch(task.id) as watch:
            _, lease = await running(store)
            for number in range(150):
                await store.progress(lease, str(number))
            await store.finish(lease, COMPLETED, b"")
            last = await watch.next()
            for _ in range(99):
                last = await watch.next()
        assert last.state is COMPLETED


async def test_a_caller_that_leaves_does_not_undo_what_it_stored(opened: OpenStore) -> None:
    async with opened() as store:
        task = await store.submit(ME, "tool", b"")
        _, lease = await running(store)
        with store.watch(task.id) as watch:
            finishing = asyncio.ensure_future(store.finish(lease, COMPLETED, b"x" * 100_000))
            await asyncio.sleep(0)
            finishing.cancel()
            done = await watch.next()
        assert done.state is COMPLETED
        assert await store.result(done) == b"x" * 100_000
