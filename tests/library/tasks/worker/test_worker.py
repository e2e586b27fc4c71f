"""A worker runs the tasks of a store: each once, within its limits, and none is lost."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from portico.core.state.store_error import StoreError
from portico.library.tasks.store.record import (
    CANCELLED,
    COMPLETED,
    FAILED,
    INTERRUPTED,
    QUEUED,
    RUNNING,
    STARTING,
    NotAccepted,
    TaskLimits,
)
from portico.library.tasks.store.store import TaskStore, tasks_in_folder, tasks_in_memory
from portico.library.tasks.worker.work import LeaseLost, RunOutcome, Work
from tests.support.clock import Clock
from tests.support.task_runners import ME, PLAIN, REPEATABLE, WatchedWorker, comes, seen
from tests.support.task_stores import SetClocks


class Stores:
    """Several stores with the same tasks, as those of several processes."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._folder = folder
        self._limits = TaskLimits(max_result=1000)
        self.now = SetClocks()
        self.stack = AsyncExitStack()
        self._memory = None if kind == "file" else tasks_in_memory(self._limits, self.now.clocks)

    def open(self) -> TaskStore:
        if self._memory is not None:
            return self._memory
        return tasks_in_folder(str(self._folder), self._limits, self.now.clocks)

    @asynccontextmanager
    async def worker(self, **settings: float) -> AsyncIterator[WatchedWorker]:
        """A worker that has ended when the block is left."""
        worker = WatchedWorker(self.open, **settings)
        try:
            yield worker
        finally:
            await worker.close()


@pytest.fixture(params=["memory", "file"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Stores:
    return Stores(request.param, tmp_path)


async def test_a_submitted_task_runs_and_its_result_is_stored(stores: Stores) -> None:
    async with stores.worker() as worker:
        task = await worker.begun(b"one")
        assert await worker.state(task) == RUNNING
        worker.plain.end(b"one", RunOutcome(payload=b"done", message="well", usage={"n": 1}))
        await worker.wait_until_idle()
        done = await worker.store.get(ME, task.id)
        assert done is not None
        assert (done.state, done.message, done.usage) == (COMPLETED, "well", {"n": 1})
        assert await worker.store.result(done) == b"done"
        assert (worker.created, worker.finished) == ([task], [done])
        assert worker.reports == []


async def test_tasks_run_in_order_and_no_more_than_allowed(stores: Stores) -> None:
    async with stores.worker(running=2) as worker:
        inputs = [b"%d" % number for number in range(6)]
        tasks = [await worker.submit(ME, PLAIN, input) for input in inputs]
        for number, input in enumerate(inputs):
            await comes(lambda: len(worker.plain.begun) >= min(number + 2, 6))  # noqa: B023
            assert worker.plain.begun == inputs[: number + 2]
            assert worker.running == len(inputs[number : number + 2])
            worker.plain.end(input)
            await comes(lambda: len(worker.finished) > number)  # noqa: B023
        assert [await worker.result(task) for task in tasks] == inputs
        await worker.wait_until_idle()
        assert not worker.is_busy


async def test_a_task_with_a_free_place_does_not_wait_in_the_queue(stores: Stores) -> None:
    async with stores.worker(running=2) as worker:
        await worker.begun(b"0")
        worker.plain.end(b"0")
        await worker.wait_until_idle()  # from now on the worker knows that no task waits
        assert (await worker.submit(ME, PLAIN, b"1")).state == STARTING
        both = await asyncio.gather(*(worker.submit(ME, PLAIN, input) for input in (b"2", b"3")))
        assert sorted(task.state for task in both) == [QUEUED, STARTING]
        assert (await worker.submit(ME, PLAIN, b"4")).state == QUEUED
        for input in (b"1", b"2", b"3", b"4"):
            worker.plain.end(input)
        await worker.wait_until_idle()
        assert worker.plain.begun == [b"0", b"1", b"2", b"3", b"4"]


async def test_a_place_whose_tasks_never_end_keeps_out_none_of_another(stores: Stores) -> None:
    async with stores.worker(running=2) as worker:
        for number in range(4):
            await worker.submit(ME, PLAIN, b"stuck %d" % number, place="a")
        await comes(lambda: len(worker.plain.begun) == 2)
        for number in range(3):
            await worker.submit(ME, PLAIN, b"%d" % number, place="b")
        await comes(lambda: {b"0", b"1"} <= {*worker.plain.begun})
        assert b"2" not in worker.plain.begun
        worker.plain.end(b"0")
        await comes(lambda: b"2" in worker.plain.begun)
        assert [input for input in worker.plain.begun if b"stuck" in input] == [
            b"stuck 0",
            b"stuck 1",
        ]
        worker.plain.end(b"stuck 0")
        await comes(lambda: b"stuck 2" in worker.plain.begun)


async def test_a_kind_with_a_limit_of_its_own_takes_no_place(stores: Stores) -> None:
    async with stores.worker(running=1) as worker:
        worker.register(REPEATABLE, worker.repeatable, lambda: 3)
        for number in range(4):
            await worker.submit(ME, REPEATABLE, b"%d" % number, place="a")
        await comes(lambda: worker.repeatable.begun == [b"0", b"1", b"2"])
        await worker.submit(ME, PLAIN, b"plain", place="a")
        await comes(lambda: worker.plain.begun == [b"plain"])
        await worker.submit(ME, PLAIN, b"next", place="a")
        worker.repeatable.end(b"0")  # although a task of the same place waits
        await comes(lambda: b"3" in worker.repeatable.begun)
        assert worker.plain.begun == [b"plain"]


async def test_a_worker_is_idle_only_when_no_task_waits(stores: Stores) -> None:
    async with stores.worker(running=1) as worker:
        await worker.wait_until_idle()
        await worker.begun(b"one")
        await worker.submit(ME, PLAIN, b"two")
        idle = asyncio.ensure_future(worker.wait_until_idle())
        worker.plain.end(b"one")
        await comes(lambda: b"two" in worker.plain.begun)
        assert not idle.done()
        worker.plain.end(b"two")
        await idle


async def test_a_task_that_is_submitted_while_others_are_claimed_is_not_forgotten(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stores.worker() as worker:
        claim = worker.store.claim

        async def late(owner: str, kinds: list[str], *more: Any) -> object:
            found = await claim(owner, kinds, *more)
            if found is None and not worker.created:
                await worker.submit(ME, PLAIN, b"late")
                was_busy.append(worker.is_busy)
            return found

        was_busy: list[bool] = []
        monkeypatch.setattr(worker.store, "claim", late)
        worker.start()
        await comes(lambda: was_busy)
        idle = asyncio.ensure_future(worker.wait_until_idle())
        await comes(lambda: worker.plain.begun)
        assert not idle.done()
        worker.plain.end(b"late")
        await idle


# Ends other than results.


async def test_a_runner_that_raises_fails_its_task_and_no_other(stores: Stores) -> None:
    async with stores.worker() as worker:
        task, other = await worker.begun(b"one"), await worker.begun(b"two")
        worker.plain.end(b"one", ValueError("secret"))
        worker.plain.end(b"two")
        await worker.wait_until_idle()
        assert await worker.state(task) == FAILED
        result = await worker.result(task)
        assert result == b'{"error":{"code":-32603,"message":"internal error: ValueError"}}'
        assert worker.reports == [f"task {task.id} failed: ValueError: secret"]
        assert await worker.state(other) == COMPLETED


async def test_a_result_that_is_too_large_fails_its_task(stores: Stores) -> None:
    async with stores.worker() as worker:
        task = await worker.begun(b"one")
        worker.plain.end(b"one", RunOutcome(payload=b"x" * 1001))
        await worker.wait_until_idle()
        assert await worker.state(task) == FAILED
        assert b"exceeds the limit of 1000 bytes" in (await worker.result(task) or b"")


async def test_a_call_that_is_cancelled_by_itself_is_interrupted(stores: Stores) -> None:
    async with stores.worker() as worker:
        task = await worker.begun(b"one", REPEATABLE)
        running = worker.repeatable.works[b"one"].running
        assert running is not None
        running.cancel()
        await worker.wait_until_idle()
        done = await worker.store.get(ME, task.id)
        assert done is not None
        assert done.state == INTERRUPTED
        assert done.message == "interrupted: the call of the task was cancelled before it ended"


async def test_a_cancelled_task_that_waits_never_begins(stores: Stores) -> None:
    async with stores.worker(running=1) as worker:
        await worker.begun(b"one")
        task = await worker.submit(ME, PLAIN, b"two")
        assert await worker.store.cancel(ME, task.id) is not None
        worker.plain.end(b"one")
        await worker.wait_until_idle()
        assert await worker.state(task) == CANCELLED
        assert worker.plain.begun == [b"one"]


async def test_a_task_that_is_cancelled_before_it_begins_never_runs(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stores.worker() as worker:
        begin = worker.store.begin

        async def cancelled(lease: object) -> object:
            assert await worker.store.cancel(ME, worker.created[0].id) is not None
            return await begin(lease)  # type: ignore[arg-type]

        monkeypatch.setattr(worker.store, "begin", cancelled)
        task = await worker.submit(ME, PLAIN, b"one")
        await worker.wait_until_idle()
        assert await worker.state(task) == CANCELLED
        assert worker.plain.begun == []
        assert [done.state for done in worker.finished] == [CANCELLED]


async def test_a_running_task_is_cancelled_once_and_may_end_its_work(stores: Stores) -> None:
    async with stores.worker(lease_s=0.1) as worker:
        ending = asyncio.Event()
        worker.plain.at_end = lambda: _wait(ending)
        task = await worker.begun(b"one")
        for _ in range(2):
            assert await worker.store.cancel(ME, task.id) is not None
        await comes(lambda: worker.plain.cancelled)
        for _ in range(5):  # others look at the task meanwhile
            worker.wake()
            assert await worker.state(task) == RUNNING
        ending.set()
        await worker.wait_until_idle()
        assert await worker.state(task) == CANCELLED
        assert worker.plain.cancelled == [b"one"]


async def test_a_task_that_is_cancelled_at_once_is_stopped_and_not_written(stores: Stores) -> None:
    async with stores.worker() as worker:
        task = await worker.begun(b"one")
        cancelled = await worker.store.cancel(ME, task.id, at_once=True)
        await worker.wait_until_idle()
        assert worker.plain.cancelled == [b"one"]
        assert worker.plain.works[b"one"].is_cancelled
        assert await worker.store.get(ME, task.id) == cancelled


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


# Questions and status.


async def test_answers_reach_their_questions_in_order(stores: Stores) -> None:
    async with stores.worker() as worker:
        task = await worker.begun(b"one")
        work = worker.plain.works[b"one"]
        asked = asyncio.ensure_future(work.ask([b"first?", b"second?"]))
        await comes(lambda: work.task.questions)
        first, second = (question.key for question in work.task.questions)
        await worker.store.answer(ME, task.id, {second: b"2"})
        await worker.store.answer(ME, task.id, {first: b"1", second: b"too late"})
        assert await asked == [b"1", b"2"]
        assert await worker.state(task) == RUNNING


async def test_questions_beyond_the_limit_wait_until_others_are_answered(stores: Stores) -> None:
    async with stores.worker() as worker:
        task = await worker.begun(b"one")
        work, most = worker.plain.works[b"one"], worker.store.limits.questions
        bodies = [b"%d?" % number for number in range(2 * most + 1)]
        single = asyncio.ensure_future(work.ask([b"single?"]))
        await comes(lambda: work.task.questions)
        many = asyncio.ensure_future(work.ask(bodies))
        late = asyncio.ensure_future(work.ask([b"late?"]))
        order: list[bytes] = []
        while len(order) < len(bodies) + 2:
            found = await seen(worker.store, task.id, lambda task: task.pending)
            assert len(found.questions) <= most
            order += [question.body for question in found.pending]
            given = {question.key: question.body + b"!" for question in found.pending}
            await worker.store.answer(ME, task.id, given)
            await comes(lambda: not {*given} & {one.key for one in work.task.questions})  # noqa: B023
        assert await many == [body + b"!" for body in bodies]
        assert (await single, await late) == ([b"single?!"], [b"late?!"])
        assert order[: most + 1] == [b"single?", *bodies[:most]]
        assert await worker.state(task) == RUNNING


async def test_a_question_that_is_withdrawn_leaves_room_for_others(stores: Stores) -> None:
    async with stores.worker() as worker:
        task = await worker.begun(b"one")
        work, most = worker.plain.works[b"one"], worker.store.limits.questions
        first = asyncio.ensure_future(work.ask([b"?"] * most))
        await comes(lambda: work.task.questions)
        second = asyncio.ensure_future(work.ask([b"second?"]))
        waiting = asyncio.ensure_future(work.ask([b"third?"]))
        await asyncio.sleep(0)
        for asking in (waiting, first):
            asking.cancel()
            await asyncio.wait({asking})
        found = await seen(
            worker.store, task.id, lambda task: [one.body for one in task.pending] == [b"second?"]
        )
        await worker.store.answer(ME, task.id, {found.pending[0].key: b"2"})
        assert await second == [b"2"]


async def test_a_question_that_is_too_large_fails_its_task_with_the_reason(stores: Stores) -> None:
    async with stores.worker() as worker:

        async def ask(work: Work) -> RunOutcome:
            await work.ask([b"x" * (worker.store.limits.max_question + 1)])
            raise AssertionError("it was stored")

        task = await worker.adopt(ME, PLAIN, b"", ask)
        await worker.wait_until_idle()
        assert await worker.state(task) == FAILED
        assert b"a question exceeds the limit of" in (await worker.result(task) or b"")
        assert worker.reports == []


async def test_a_question_of_a_lost_task_is_refused(stores: Stores) -> None:
    async with stores.worker() as worker:
        task = await worker.begun(b"one")
        await worker.store.cancel(ME, task.id, at_once=True)
        with pytest.raises(LeaseLost, match="ended before its question"):
            await worker.plain.works[b"one"].ask([b"?"])


async def test_of_several_messages_within_a_second_the_last_is_stored(
    stores: Stores, clock: Clock
) -> None:
    async with stores.worker() as worker:
        task = await worker.begun(b"one")
        work = worker.plain.works[b"one"]
        for number in range(100):
            await work.progress(f"step {number}")
        events = [event.text for event in await worker.store.events(task)]
        assert events == ["step 0"]
        with worker.store.watch(task.id) as changes:
            await clock.advance(1.5)
            assert (await changes.next()).message == "step 99"
        assert [event.text for event in await worker.store.events(task)] == ["step 0", "step 99"]


async def test_a_message_that_cannot_be_stored_does_not_end_its_task(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    async with stores.worker() as worker:
        task = await worker.begun(b"one")
        work = worker.plain.works[b"one"]
        monkeypatch.setattr(worker.store, "progress", _full)
        await work.progress("first")
        await work.progress("second")
        await clock.advance(1.5)
        worker.plain.end(b"one")
        await worker.wait_until_idle()
        assert await worker.state(task) == COMPLETED


async def _full(*_: object, **__: object) -> None:
    raise StoreError("the disk is full; free some space and retry")


# Leases.


async def test_a_lease_is_renewed_as_long_as_its_task_runs(stores: Stores, clock: Clock) -> None:
    async with stores.worker(lease_s=15) as worker:
        task = await worker.begun(b"one")
        other = stores.open()
        for _ in range(20):
            stores.now.advance(5)
            await clock.advance(5)
            until = stores.now.steady + 15
            await seen(other, task.id, lambda task: task.lease and task.lease.until >= until)  # noqa: B023
            assert await other.recover() == []
        worker.plain.end(b"one")
        await worker.wait_until_idle()
        assert await worker.state(task) == COMPLETED
        await other.close()


async def test_a_worker_that_lost_its_lease_stops_and_writes_nothing(stores: Stores) -> None:
    async with stores.worker(running=1) as worker:
        task = await worker.begun(b"one", REPEATABLE)
        other = stores.open()
        stores.now.advance(20)
        assert [one.id for one in await other.recover()] == [task.id]
        taken = await other.claim("other", [REPEATABLE])
        assert taken is not None
        assert taken.lease is not None
        worker.wake()
        await comes(lambda: worker.repeatable.cancelled)
        await worker.wait_until_idle()
        assert worker.finished == []
        await other.begin(taken.lease)
        done = await other.finish(taken.lease, COMPLETED, b"of the other")
        assert await other.get(ME, task.id) == done
        await other.close()


async def test_a_result_after_the_lease_was_lost_changes_nothing(stores: Stores) -> None:
    async with stores.worker(running=1) as worker:
        task = await worker.begun(b"one", REPEATABLE)
        other = stores.open()
        stores.now.advance(20)
        await other.recover()
        taken = await other.claim("other", [REPEATABLE])
        assert taken is not None
        worker.repeatable.end(b"one", RunOutcome(payload=b"late"))
        await comes(lambda: not worker.running)
        assert await other.get(ME, task.id) == taken
        assert worker.finished == []
        await other.close()


async def test_a_task_that_was_lost_can_be_claimed_again_while_its_runner_ends(
    stores: Stores,
) -> None:
    async with stores.worker() as worker:
        ending = asyncio.Event()
        worker.repeatable.at_end = lambda: _wait(ending)
        task = await worker.begun(b"one", REPEATABLE)
        other = stores.open()
        stores.now.advance(20)
        await other.recover()
        worker.wake()
        await comes(lambda: worker.repeatable.begun == [b"one", b"one"])
        assert worker.repeatable.cancelled == [b"one"]
        ending.set()
        await comes(lambda: worker.running == 1)
        assert await worker.state(task) == RUNNING
        worker.repeatable.end(b"one")
        await worker.wait_until_idle()
        assert await worker.result(task) == b"one"
        assert [done.state for done in worker.finished] == [COMPLETED]
        assert worker.reports == []


async def test_the_tasks_of_a_worker_that_ended_are_recovered(stores: Stores) -> None:
    store = stores.open()
    inputs = {b"begun": PLAIN, b"claimed": PLAIN, b"again": REPEATABLE}
    tasks = {}
    for input, kind in inputs.items():
        repeats = kind == REPEATABLE
        tasks[input] = await store.submit(ME, kind, input, is_repeatable=repeats)
        leased = await store.claim("dead", [kind])
        assert leased is not None
        assert leased.lease is not None
        if input != b"claimed":
            await store.begin(leased.lease)
    async with stores.worker() as worker:
        worker.start()
        await worker.wait_until_idle()
        assert worker.plain.begun == worker.repeatable.begun == []
        stores.now.advance(20)
        await comes(lambda: worker.plain.begun and worker.repeatable.begun)
        interrupted = await worker.store.get(ME, tasks[b"begun"].id)
        assert interrupted is not None
        assert (interrupted.state, worker.finished) == (INTERRUPTED, [interrupted])
        reason = "interrupted: the process that ran the task ended before the task did"
        assert interrupted.message == reason
        worker.plain.end(b"claimed")
        worker.repeatable.end(b"again")
        await worker.wait_until_idle()
        assert [await worker.state(task) for task in tasks.values()] == [
            INTERRUPTED,
            COMPLETED,
            COMPLETED,
        ]


async def test_a_worker_does_not_interrupt_its_own_tasks_however_late_it_renews_them(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stores.worker(lease_s=0.1) as worker:
        task = await worker.begun(b"one")
        renew, recover, recovered = worker.store.renew, worker.store.recover, asyncio.Event()

        async def counted(*live: object) -> object:
            found = await recover(*live)  # type: ignore[arg-type]
            recovered.set()
            return found

        monkeypatch.setattr(worker.store, "renew", _full)
        monkeypatch.setattr(worker.store, "recover", counted)
        stores.now.advance(1000)
        await comes(lambda: worker.reports)
        recovered.clear()
        async with asyncio.timeout(60):
            await recovered.wait()
        assert await worker.state(task) == RUNNING
        monkeypatch.setattr(worker.store, "renew", renew)
        worker.plain.end(b"one")
        await worker.wait_until_idle()
        assert await worker.state(task) == COMPLETED
        why = "the disk is full; free some space and retry"
        assert worker.reports == [f"the task store is not available: {why}; retrying"]


# Work that began elsewhere.


async def test_adopted_work_is_a_task_that_runs_already(stores: Stores) -> None:
    async with stores.worker(running=1) as worker:
        await worker.begun(b"one")
        task = await worker.adopt(ME, PLAIN, b"input", worker.plain.run)
        assert task.state == RUNNING
        assert worker.running == 2  # it is not new work
        worker.plain.end(b"input", RunOutcome(payload=b"result"))
        await comes(lambda: worker.finished)
        assert await worker.result(task) == b"result"
        assert await worker.store.input(task) == b"input"


async def test_work_that_only_this_process_can_continue_is_waited_for_and_not_moved(
    stores: Stores,
) -> None:
    async with stores.worker() as worker:
        task = await worker.adopt(ME, REPEATABLE, b"", worker.repeatable.run, is_repeatable=False)
        ended = await closing(worker, 60)
        assert not ended.done()
        worker.repeatable.end(b"", RunOutcome(payload=b"here"))
        await ended
        assert [(one.id, one.state) for one in worker.finished] == [(task.id, COMPLETED)]
        assert worker.repeatable.cancelled == []


async def test_repeatable_work_is_not_moved_while_it_is_pinned(tmp_path: Path) -> None:
    stores = Stores("file", tmp_path)
    worker, other = WatchedWorker(stores.open), stores.open()
    pinned, free = [await worker.begun(input, REPEATABLE) for input in (b"pinned", b"free")]
    worker.repeatable.works[b"pinned"].is_pinned = True
    await worker.close(0.1)
    assert await state(other, pinned.id) == INTERRUPTED
    assert await state(other, free.id) == QUEUED
    await other.close()


async def test_a_client_with_too_many_tasks_is_refused_before_its_work_begins(
    stores: Stores,
) -> None:
    async with stores.worker() as worker:
        most = worker.store.limits.in_progress
        await worker.check_room(ME)
        first = await worker.begun(b"0")
        for number in range(1, most):
            await worker.check_room(ME)
            await worker.submit(ME, PLAIN, b"%d" % number)
        with pytest.raises(NotAccepted, match=rf"task limit reached \({most}\)"):
            await worker.check_room(ME)
        await worker.check_room("another")
        worker.plain.end(b"0")
        await seen(worker.store, first.id, lambda task: task.is_finished)
        await worker.check_room(ME)


async def test_a_store_that_cannot_be_read_does_not_refuse_work(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stores.worker() as worker:
        monkeypatch.setattr(worker.store, "room", _full)
        await worker.check_room(ME)
        assert worker.reports == []


async def test_a_resumed_task_runs_with_the_same_input(stores: Stores) -> None:
    async with stores.worker() as worker:
        first = await worker.begun(b"one")
        await worker.store.cancel(ME, first.id)
        await worker.wait_until_idle()
        worker.plain.end(b"one")
        second = await worker.store.resume(ME, first.id)  # as a command does
        assert second is not None
        assert second.resumes == first.id
        await comes(lambda: len(worker.finished) == 2)
        assert [task.id for task in worker.created] == [first.id, second.id]
        assert worker.plain.begun == [b"one", b"one"]
        assert await worker.state(first) == CANCELLED
        assert await worker.result(second) == b"one"
        assert (await worker.store.resume(ME, first.id) or first).id == second.id


async def test_two_workers_share_the_tasks_of_one_store(stores: Stores) -> None:
    async with AsyncExitStack() as stack:
        one, two = [await stack.enter_async_context(stores.worker(lease_s=0.1)) for _ in range(2)]
        inputs = [b"%d" % number for number in range(60)]
        for input in inputs:
            one.plain.end(input, RunOutcome(payload=b"one"))
            two.plain.end(input, RunOutcome(payload=b"two"))
        two.start()
        tasks = [await one.submit(ME, PLAIN, input) for input in inputs]
        await comes(lambda: len(one.finished) + len(two.finished) == len(tasks))
        assert sorted(one.plain.begun + two.plain.begun) == sorted(inputs)
        assert {await one.result(task) for task in tasks} <= {b"one", b"two"}
        assert {await one.state(task) for task in tasks} == {COMPLETED}


# The store fails.


async def test_a_result_is_stored_once_the_disk_has_space_again(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    async with stores.worker() as worker:
        task = await worker.begun(b"one")
        finish, tries = worker.store.finish, asyncio.Event()

        async def full(*_: object, **__: object) -> None:
            tries.set()
            await _full()

        monkeypatch.setattr(worker.store, "finish", full)
        worker.plain.end(b"one")
        for _ in range(5):
            async with asyncio.timeout(60):
                await tries.wait()
            tries.clear()
            stores.now.advance(100)  # its lease expires meanwhile
            await clock.advance(1.5)
        assert worker.is_busy
        assert await worker.state(task) == RUNNING
        monkeypatch.setattr(worker.store, "finish", finish)
        await clock.advance(1.5)
        await worker.wait_until_idle()
        assert await worker.result(task) == b"one"
        (report,) = worker.reports
        assert report.startswith(f"the result of task {task.id} is not stored yet: the disk")


@pytest.mark.parametrize("operation", ["renew", "leased_to", "recover", "claim", "prune"])
@pytest.mark.parametrize("error", [StoreError("damaged"), RuntimeError("odd")])
async def test_an_operation_that_fails_does_not_end_the_worker(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, clock: Clock, operation: str, error: Exception
) -> None:
    async with stores.worker() as worker:
        failed = asyncio.Event()

        async def fail(*_: object) -> None:
            failed.set()
            raise error

        first = await worker.begun(b"one")
        works = getattr(worker.store, operation)
        monkeypatch.setattr(worker.store, operation, fail)
        await clock.advance(700)
        async with asyncio.timeout(60):
            await failed.wait()
        monkeypatch.setattr(worker.store, operation, works)
        second = await worker.begun(b"two")
        for input in (b"one", b"two"):
            worker.plain.end(input)
        await worker.wait_until_idle()
        assert [await worker.state(task) for task in (first, second)] == [COMPLETED] * 2
        await comes(lambda: worker.reports)
        whys = ("damaged", "RuntimeError('odd')")
        words = {f"the task store is not available: {why}; retrying" for why in whys}
        assert set(worker.reports) <= words


async def test_a_worker_whose_store_is_unusable_is_not_busy_with_tasks_that_wait(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stores.worker() as worker:
        works = worker.store.claim
        monkeypatch.setattr(worker.store, "claim", _full)
        task = await worker.submit(ME, PLAIN, b"one")
        await worker.wait_until_idle()
        assert await worker.state(task) == QUEUED
        monkeypatch.setattr(worker.store, "claim", works)
        worker.wake()
        await comes(lambda: worker.plain.begun)


# The end of the worker.


async def closing(worker: WatchedWorker, within_s: float) -> "asyncio.Task[None]":
    """Begin to close a worker, and return once it waits."""
    task = asyncio.ensure_future(worker.close(within_s))
    for _ in range(10):
        await asyncio.sleep(0)
    return task


async def test_closing_waits_for_running_tasks(stores: Stores) -> None:
    worker = WatchedWorker(stores.open)
    await worker.begun(b"one")
    ended = await closing(worker, 60)
    assert not ended.done()
    worker.plain.end(b"one")
    await ended
    assert [task.state for task in worker.finished] == [COMPLETED]
    assert worker.plain.cancelled == []


async def test_closing_interrupts_running_tasks_after_a_time_and_says_why(stores: Stores) -> None:
    worker = WatchedWorker(stores.open)
    await worker.begun(b"one")
    await worker.close(0.1)
    (task,) = worker.finished
    assert task.state == INTERRUPTED
    reason = "interrupted: the process that ran the task was stopped before the task ended"
    assert task.message == reason


async def test_a_task_is_cancelled_also_while_its_worker_closes(stores: Stores) -> None:
    worker = WatchedWorker(stores.open)
    task = await worker.begun(b"one")
    ended = await closing(worker, 60)
    await worker.store.cancel(ME, task.id)
    await ended
    assert [one.state for one in worker.finished] == [CANCELLED]


@pytest.mark.parametrize("within_s", [0, 60])
async def test_closing_hands_repeatable_tasks_over_at_once(tmp_path: Path, within_s: float) -> None:
    stores = Stores("file", tmp_path)
    worker, other = WatchedWorker(stores.open), stores.open()
    plain, again = await worker.begun(b"one"), await worker.begun(b"two", REPEATABLE)
    ended = await closing(worker, within_s)
    await seen(other, again.id, lambda task: task.state is QUEUED)
    if within_s:
        assert await state(other, plain.id) == RUNNING
        worker.plain.end(b"one")
    await ended
    assert await state(other, plain.id) == (COMPLETED if within_s else INTERRUPTED)
    assert await state(other, again.id) == QUEUED
    await other.close()


@pytest.mark.parametrize("has_begun", [False, True])
async def test_closing_waits_only_for_work_that_has_begun(tmp_path: Path, has_begun: bool) -> None:
    stores = Stores("file", tmp_path)
    worker, other = WatchedWorker(stores.open), stores.open()
    worker.plain.begins_itself = True
    task = await worker.begun(b"one")
    if has_begun:
        worker.plain.may_begin.set()
        await comes(lambda: worker.plain.works[b"one"].has_begun)
    ended = await closing(worker, 600)
    if has_begun:
        assert not ended.done()
        worker.plain.end(b"one")
    async with asyncio.timeout(60):
        await ended
    assert await state(other, task.id) == (COMPLETED if has_begun else QUEUED)
    await other.close()


async def state(store: TaskStore, id: str) -> str:
    task = await store.get(ME, id)
    return "lost" if task is None else str(task.state)


@pytest.mark.parametrize("at", ["input", "begin"])
async def test_a_claimed_task_that_has_not_begun_waits_for_the_next_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    stores = Stores("file", tmp_path)
    worker, other = WatchedWorker(stores.open), stores.open()
    works, reached, goes = getattr(worker.store, at), asyncio.Event(), asyncio.Event()

    async def slow(about: object) -> object:
        found = await works(about)
        reached.set()
        await goes.wait()
        return found

    monkeypatch.setattr(worker.store, at, slow)
    task = await worker.submit(ME, PLAIN, b"one")
    await reached.wait()
    ended = await closing(worker, 0)
    goes.set()
    await ended
    assert await state(other, task.id) == QUEUED
    assert worker.plain.begun == []
    await other.close()


async def test_tasks_that_wait_stay_in_the_store_when_a_worker_closes(tmp_path: Path) -> None:
    stores = Stores("file", tmp_path)
    worker, other = WatchedWorker(stores.open, running=1), stores.open()
    await worker.begun(b"one")
    waiting = await worker.submit(ME, PLAIN, b"two")
    ended = await closing(worker, 60)
    late = await worker.submit(ME, PLAIN, b"three")
    worker.plain.end(b"one")
    await ended
    assert [await state(other, task.id) for task in (waiting, late)] == [QUEUED] * 2
    assert worker.plain.begun == [b"one"]
    await other.close()


async def test_a_worker_that_closes_adopts_only_what_another_can_continue(tmp_path: Path) -> None:
    stores = Stores("file", tmp_path)
    worker, other = WatchedWorker(stores.open), stores.open()
    await worker.begun(b"one")
    ended = await closing(worker, 60)
    with pytest.raises(NotAccepted, match="its process is stopping"):
        await worker.adopt(ME, PLAIN, b"", worker.plain.run)
    task = await worker.adopt(ME, REPEATABLE, b"two", worker.repeatable.run)
    worker.plain.end(b"one")
    await ended
    assert await state(other, task.id) == QUEUED
    await other.close()


async def test_a_runner_that_ignores_its_end_does_not_keep_the_worker(
    stores: Stores, clock: Clock
) -> None:
    worker = WatchedWorker(stores.open)
    ignoring = asyncio.Event()

    async def ignore(work: Work) -> RunOutcome:
        while True:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                if ignoring.is_set():
                    raise
                ignoring.set()

    await worker.adopt(ME, PLAIN, b"", ignore)
    ended = await closing(worker, 0)
    await comes(ignoring.is_set)
    await advance_until(clock, ended.done)
    await ended
    assert worker.finished == []  # its lease expires


@pytest.mark.parametrize("operation", ["renew", "leased_to", "finish", "release"])
async def test_a_store_that_fails_does_not_keep_a_worker_from_closing(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, clock: Clock, operation: str
) -> None:
    worker = WatchedWorker(stores.open)
    await worker.begun(b"one")
    await worker.begun(b"two", REPEATABLE)
    monkeypatch.setattr(worker.store, operation, _full)
    ended = await closing(worker, 1)
    await advance_until(clock, ended.done)
    await ended
    assert not worker.running


async def advance_until(clock: Clock, condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10_000):
        while not condition():
            await clock.advance(0.5)
            await asyncio.sleep(0.001)


# Other processes.


async def test_the_requests_of_other_processes_are_noticed(tmp_path: Path) -> None:
    stores = Stores("file", tmp_path)
    other = stores.open()
    async with stores.worker(lease_s=0.1) as worker:
        asks, ends = await worker.begun(b"asks"), await worker.begun(b"ends")
        asked = asyncio.ensure_future(worker.plain.works[b"asks"].ask([b"?"]))
        found = await seen(other, asks.id, lambda task: task.questions)
        await other.answer(ME, asks.id, {found.questions[0].key: b"yes"})
        assert await asked == [b"yes"]
        await other.cancel(ME, ends.id)
        await comes(lambda: worker.finished)
        assert await state(other, ends.id) == CANCELLED
        waiting = await other.submit(ME, PLAIN, b"from elsewhere")
        await comes(lambda: b"from elsewhere" in worker.plain.begun)
        await other.cancel(ME, waiting.id, at_once=True)
        await comes(lambda: b"from elsewhere" in worker.plain.cancelled)
        assert await state(other, asks.id) == RUNNING
    await other.close()


# The clock.


@pytest.mark.parametrize("jump", [-(10**8), 10**8])
async def test_a_clock_that_is_set_interrupts_no_task_and_removes_none(
    stores: Stores, clock: Clock, jump: float
) -> None:
    async with stores.worker(running=1) as worker:
        first = await worker.begun(b"one")
        waiting = await worker.submit(ME, PLAIN, b"two")
        stores.now.wall += jump
        await clock.advance(700)  # leases are renewed, and old tasks removed
        assert [await worker.state(task) for task in (first, waiting)] == [RUNNING, QUEUED]
        for input in (b"one", b"two"):
            worker.plain.end(input)
        await worker.wait_until_idle()
        assert [await worker.state(task) for task in (first, waiting)] == [COMPLETED] * 2
        stores.now.wall -= jump
        await clock.advance(700)
        worker.wake()
        assert [await worker.result(task) for task in (first, waiting)] == [b"one", b"two"]
