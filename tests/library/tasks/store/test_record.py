"""The table of states, as a state machine against both stores."""

import asyncio
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from portico.library.tasks.store.record import (
    CANCELLED,
    COMPLETED,
    FINISHED,
    INPUT_REQUIRED,
    INTERRUPTED,
    QUEUED,
    RUNNING,
    STARTING,
    TRANSITIONS,
    Lease,
    NotAccepted,
    TaskRecord,
    TaskState,
)
from tests.support.task_stores import SetClocks, opener

T = TypeVar("T")
ME = "local"
KINDS = ("plain", "repeatable")
LEASE_S = 15.0


def test_every_state_has_its_transitions_and_finished_ones_none() -> None:
    assert set(TRANSITIONS) == set(TaskState)
    assert {state for state, following in TRANSITIONS.items() if not following} == FINISHED
    assert all(state not in following for state, following in TRANSITIONS.items())


def test_every_state_can_be_reached_and_left_for_an_end() -> None:
    reached = {QUEUED}
    for _ in TaskState:
        reached |= {after for state in reached for after in TRANSITIONS[state]}
    assert reached == set(TaskState)
    assert all(CANCELLED in TRANSITIONS[state] for state in set(TaskState) - FINISHED)


class Known:
    """All that the test knows of one task."""

    def __init__(self, task: TaskRecord) -> None:
        self.kind = task.kind
        self.state = task.state
        self.lease: Lease | None = None
        self.until = 0.0
        self.starts = 0
        self.is_cancel_requested = False
        self.unanswered: set[str] = set()
        self.result: bytes | None = None


class Tasks(RuleBasedStateMachine):
    """Clients, workers with old and new leases, crashes and time, in any order."""

    kind_of_store = "memory"
    ids = Bundle("ids")
    leases = Bundle("leases")
    keys = Bundle("keys")

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        self.now = SetClocks()
        self.context = opener(self.kind_of_store, Path(self.folder.name), self.now)()
        self.store = self.run(self.context.__aenter__())
        self.known: dict[str, Known] = {}
        self.used: set[str] = set()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    def teardown(self) -> None:
        self.run(self.context.__aexit__(None, None, None))
        self.runner.close()
        self.folder.cleanup()

    def holds(self, lease: Lease) -> Known | None:
        known = self.known[lease.task_id]
        return known if known.lease is not None and known.lease.token == lease.token else None

    def move(self, known: Known, state: TaskState) -> None:
        assert state in TRANSITIONS[known.state]
        known.state = state
        if state in FINISHED or state is QUEUED:
            known.lease, known.unanswered = None, set()

    @rule(target=ids, kind=st.sampled_from(KINDS))
    def submit(self, kind: str) -> str:
        repeats = kind == "repeatable"
        task = self.run(self.store.submit(ME, kind, b"input", is_repeatable=repeats))
        self.known[task.id] = Known(task)
        return task.id

    @rule(target=leases, kind=st.sampled_from(KINDS))
    def claim(self, kind: str) -> Any:
        task = self.run(self.store.claim("worker", (kind,), LEASE_S))
        queued = [
            id for id, known in self.known.items() if (known.kind, known.state) == (kind, QUEUED)
        ]
        if task is None:
            assert queued == []
            return multiple()
        assert task.id == queued[0]
        known = self.known[task.id]
        self.move(known, STARTING)
        known.starts += 1
        known.lease, known.until = task.lease, self.now.steady + LEASE_S
        assert task.lease is not None
        return task.lease

    @rule(lease=leases)
    def begin(self, lease: Lease) -> None:
        known = self.holds(lease)
        if known is not None and known.state is not STARTING:
            with pytest.raises(NotAccepted):
                self.run(self.store.begin(lease))
            return
        assert (self.run(self.store.begin(lease)) is not None) == (known is not None)
        if known is not None:
            self.move(known, RUNNING)

    @rule(lease=leases)
    def renew(self, lease: Lease) -> None:
        known = self.holds(lease)
        task = self.run(self.store.renew(lease))
        assert (task is not None) == (known is not None)
        if known is not None and task is not None:
            known.until = self.now.steady + LEASE_S
            assert task.is_cancel_requested == known.is_cancel_requested

    @rule(target=keys, lease=leases)
    def ask(self, lease: Lease) -> Any:
        known = self.holds(lease)
        if known is not None and known.state not in (RUNNING, INPUT_REQUIRED):
            with pytest.raises(NotAccepted):
                self.run(self.store.ask(lease, [b"sure?"]))
            return multiple()
        self.run(self.store.take_answers(lease))
        if known is not None and len(known.unanswered) == 16:
            return multiple()
        task = self.run(self.store.ask(lease, [b"sure?"]))
        assert (task is not None) == (known is not None)
        if known is None or task is None:
            return multiple()
        key = task.pending[-1].key
        assert key not in self.used
        self.used.add(key)
        known.unanswered.add(key)
        if known.state is RUNNING:
            self.move(known, INPUT_REQUIRED)
        return task.id, key

    @rule(key=keys)
    def answer(self, key: tuple[str, str]) -> None:
        id, name = key
        task = self.run(self.store.answer(ME, id, {name: b"yes"}))
        assert task is not None
        known = self.known[id]
        if name in known.unanswered:
            known.unanswered.discard(name)
            if not known.unanswered:
                self.move(known, RUNNING)

    @rule(id=ids)
    def cancel(self, id: str) -> None:
        known = self.known[id]
        assert self.run(self.store.cancel(ME, id)) is not None
        if known.state is QUEUED:
            self.move(known, CANCELLED)
        elif known.state not in FINISHED:
            known.is_cancel_requested = True

    @rule(lease=leases, state=st.sampled_from(sorted(FINISHED)), result=st.binary(max_size=5))
    def finish(self, lease: Lease, state: TaskState, result: bytes) -> None:
        known = self.holds(lease)
        done = self.run(self.store.finish(lease, state, result))
        assert (done is not None) == (known is not None)
        if known is not None:
            self.move(known, state)
            known.result = result

    @rule(seconds=st.sampled_from([1.0, 10.0, 20.0]), jump=st.sampled_from([0.0, 50.0, -50.0]))
    def time_passes(self, seconds: float, jump: float) -> None:
        self.now.advance(seconds)
        self.now.wall += jump

    @rule()
    def recover(self) -> None:
        found = {task.id: task.state for task in self.run(self.store.recover())}
        for id, known in self.known.items():
            if known.lease is None or self.now.steady < known.until:
                assert id not in found
                continue
            if known.is_cancel_requested:
                expected = CANCELLED
            elif (known.state is STARTING or known.kind == "repeatable") and known.starts < 10:
                expected = QUEUED
            else:
                expected = INTERRUPTED
            assert found[id] is expected
            self.move(known, expected)

    @rule(id=ids)
    def resume(self, id: str) -> None:
        if self.known[id].state in (COMPLETED, *set(TaskState) - FINISHED):
            with pytest.raises(NotAccepted):
                self.run(self.store.resume(ME, id))
            return
        task = self.run(self.store.resume(ME, id))
        assert task is not None
        assert task.resumes == id
        if task.id not in self.known:
            self.known[task.id] = Known(task)

    @invariant()
    def every_task_is_as_it_should_be(self) -> None:
        page = self.run(self.store.page(ME, 1000))
        assert page is not None
        assert [task.id for task in page.tasks] == [*self.known][::-1]
        for task in page.tasks:
            known = self.known[task.id]
            assert task.state is known.state
            assert {question.key for question in task.pending} == known.unanswered
            assert (task.state is INPUT_REQUIRED) == bool(task.pending)
            assert task.is_cancel_requested == known.is_cancel_requested
            if task.is_finished:
                assert self.run(self.store.result(task)) == known.result


class TasksInAFile(Tasks):
    kind_of_store = "file"


@pytest.mark.parametrize("machine, examples", [(Tasks, 60), (TasksInAFile, 15)])
def test_any_order_of_operations_keeps_the_table(machine: type[Tasks], examples: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(max_examples=examples, stateful_step_count=40, deadline=None),
    )
    assert machine.kind_of_store
