"""The store of tasks: every operation on them, durable when it returns.

Clients name a task by principal and id. Workers name it by their lease: an operation with a lease
that another worker has taken, or whose task is finished, changes nothing and returns None.
"""

import asyncio
import os
import secrets
import sqlite3
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from msgspec.structs import replace

from portico.model.wording import counted
from portico.state.database import Database, FileDatabase, MemoryDatabase
from portico.tasks import rows
from portico.tasks.payloads import PayloadFiles
from portico.tasks.record import (
    CANCELLED,
    FINISHED,
    ID_PREFIX,
    INPUT_REQUIRED,
    QUEUED,
    RESUMABLE,
    RUNNING,
    STARTING,
    STORE_FILE,
    Clocks,
    Lease,
    TaskEvent,
    TaskLimits,
    TaskQuestion,
    TaskRecord,
    TaskRefused,
    TaskState,
    new_key,
)
from portico.tasks.task_watch import TaskWatch, TaskWatches

LEASE_S = 15.0
_MAX_ID = 64
_MAX_SEQ = (1 << 63) - 1
_MAX_DIGITS = 18
_JUMP_S = 60.0
_DEFAULT_LIMITS = TaskLimits()
_DEFAULT_CLOCKS = Clocks()
T = TypeVar("T")
P = ParamSpec("P")
_Change = Callable[[TaskRecord, float], TaskRecord]


class TaskPage(NamedTuple):
    """Some of a principal's tasks, newest first; and the cursor of the rest, if there is more."""

    tasks: list[TaskRecord]
    cursor: str | None


def _to_the_end(
    method: Callable[Concatenate["TaskStore", P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["TaskStore", P], Coroutine[Any, Any, T]]:
    """Complete an operation even if its caller is cancelled: it may be stored by then."""

    async def shielded(self: "TaskStore", /, *args: P.args, **kwargs: P.kwargs) -> T:
        running = asyncio.ensure_future(method(self, *args, **kwargs))
        self.unfinished.add(running)
        running.add_done_callback(self.unfinished.discard)
        return await asyncio.shield(running)

    return wraps(method)(shielded)


class TaskStore:
    """The tasks of one database."""

    def __init__(
        self, database: Database, folder: str | None, limits: TaskLimits, clocks: Clocks
    ) -> None:
        self._database = database
        self._payloads = PayloadFiles(folder, limits.inline)
        self._limits = limits
        self._clocks = clocks
        self._watches = TaskWatches()
        self._offset = clocks.wall() - clocks.steady()
        self.unfinished: set[asyncio.Future[Any]] = set()
        """Operations whose callers may have left; `close` waits for them."""

    @property
    def limits(self) -> TaskLimits:
        """The bounds of the store."""
        return self._limits

    # For clients

    async def room(self, principal: str) -> int:
        """Return how many more tasks a principal may have in progress; raises TaskRefused."""
        count = await self._database.read(lambda db: rows.unfinished_count(db, principal))
        left = self._limits.in_progress - (count or 0)
        if left <= 0:
            raise _too_many(self._limits)
        return left

    async def submit(
        self,
        principal: str,
        kind: str,
        input: bytes,
        ttl_s: float | None = None,
        *,
        is_repeatable: bool = False,
        follows: str = "",
        owner: str = "",
        lease_s: float = LEASE_S,
    ) -> TaskRecord:
        """Store a new task, and return it; raise TaskRefused or StoreError if it is not stored.
        A worker that starts it now is its `owner`."""
        task = self._new(principal, kind, ttl_s)
        task = replace(task, is_repeatable=is_repeatable, follows=follows)
        if owner:
            task = self._leased(task, owner, lease_s)
        return await self._add(task, input)

    async def resume(self, principal: str, id: str) -> TaskRecord | None:
        """Store a task that does the work of an unsuccessful one; the second time, return it."""
        task = await self.get(principal, id)
        input = None if task is None else await self.input(task)
        if task is None or input is None:
            return None
        if task.state not in RESUMABLE:
            raise TaskRefused(f"the task is {task.state}: only an unsuccessful one can be resumed")
        # The same key lets a server recognise work that it did before the interruption.
        fresh = replace(
            self._new(principal, task.kind, task.ttl_s),
            resumes=task.id,
            idempotency_key=task.idempotency_key,
            is_repeatable=task.is_repeatable,
            follows=task.follows,
            note=task.note,
        )
        return await self._add(fresh, input)

    async def get(self, principal: str, id: str) -> TaskRecord | None:
        """Return a principal's task; None if it is unknown, expired or of another principal."""
        return await self._database.read(lambda db: self._visible(db, principal, id))

    async def page(
        self, principal: str, count: int = 100, cursor: str | None = None
    ) -> TaskPage | None:
        """Return a principal's tasks, newest first; None if the cursor is not valid."""
        before = _MAX_SEQ if cursor is None else _seq(cursor)
        if before is None:
            return None
        now = self._clocks.wall()
        page = await self._database.read(
            lambda db: rows.page(db, principal, now, before, count + 1)
        )
        found = page or []
        tasks = [task for _, task in found[:count]]
        return TaskPage(tasks, str(found[count - 1][0]) if len(found) > count else None)

    async def input(self, task: TaskRecord) -> bytes | None:
        """Return a task's input; None if the task was removed."""
        return await self._payload(task, "input")

    async def result(self, task: TaskRecord) -> bytes | None:
        """Return a task's result; None if it has none, or if the task was removed."""
        return await self._payload(task, "result")

    async def events(self, task: TaskRecord) -> list[TaskEvent]:
        """Return a task's latest events, oldest first."""
        return await self._database.read(lambda db: rows.events(db, task.id)) or []

    async def answer(
        self, principal: str, id: str, answers: Mapping[str, bytes]
    ) -> TaskRecord | None:
        """Store answers to some of a task's questions; unknown and answered keys are ignored.
        Raises TaskRefused."""
        longest = self._limits.max_question

        def change(task: TaskRecord, now: float) -> TaskRecord:
            if any(len(answers.get(question.key, b"")) > longest for question in task.pending):
                raise TaskRefused(f"an answer exceeds the limit of {longest} bytes; send less")
            questions = tuple(
                replace(question, answer=answers[question.key])
                if question.answer is None and question.key in answers
                else question
                for question in task.questions
            )
            if questions == task.questions:
                return task
            answered = replace(task, questions=questions, updated_at=max(task.updated_at, now))
            return answered if answered.pending else answered.moved(RUNNING, now)

        return await self._change(lambda db: self._visible(db, principal, id), change)

    async def cancel(self, principal: str, id: str, *, at_once: bool = False) -> TaskRecord | None:
        """Cancel a queued task, or request it of the worker; a finished task stays as it is.
        `at_once` cancels a running one too: its worker loses its lease."""

        def change(task: TaskRecord, now: float) -> TaskRecord:
            if task.is_finished or (task.is_cancel_requested and not at_once):
                return task
            if task.state is QUEUED or at_once:
                return task.finished(CANCELLED, now, "cancelled", task.usage)
            return replace(task, is_cancel_requested=True, updated_at=max(task.updated_at, now))

        return await self._change(lambda db: self._visible(db, principal, id), change)

    def watch(self, id: str) -> AbstractContextManager[TaskWatch]:
        """Listen to the changes that this process makes to a task."""
        return self._watches.watch(id)

    # For workers

    async def adopt(
        self,
        principal: str,
        kind: str,
        input: bytes,
        owner: str,
        lease_s: float = LEASE_S,
        ttl_s: float | None = None,
        *,
        is_repeatable: bool = False,
        key: str = "",
    ) -> TaskRecord:
        """Store work that a worker has begun already, leased to it; raises as `submit` does. `key`
        is the idempotency key that the work has already used."""
        new = replace(self._new(principal, kind, ttl_s), state=RUNNING, is_repeatable=is_repeatable)
        if key:
            new = replace(new, idempotency_key=key)
        return await self._add(self._leased(new, owner, lease_s), input)

    async def leased_to(self, owner: str) -> list[TaskRecord]:
        """Return the tasks that a worker has."""

        def job(db: sqlite3.Connection) -> list[TaskRecord]:
            return [t for t in rows.leased(db) if t.lease is not None and t.lease.owner == owner]

        return await self._database.read(job) or []

    async def in_progress(self) -> list[TaskRecord]:
        """Return the tasks of all workers."""
        return await self._database.read(lambda db: [*rows.leased(db)]) or []

    async def has_queued(self, kinds: Collection[str]) -> bool:
        """True if a task of these kinds waits for a worker."""
        return await self._database.read(lambda db: rows.oldest_queued(db, kinds)) is not None

    async def release(self, lease: Lease) -> TaskRecord | None:
        """Queue a leased task again, for another worker."""
        return await self._change(self._held(lease), lambda task, now: task.queued(now))

    async def claim(
        self, owner: str, kinds: Collection[str], lease_s: float = LEASE_S
    ) -> TaskRecord | None:
        """Lease the oldest queued task of these kinds to a worker; None if there is none."""

        def change(task: TaskRecord, _: float) -> TaskRecord:
            return self._leased(task, owner, lease_s)

        oldest = await self._database.read(lambda db: rows.oldest_queued(db, kinds))
        if oldest is None:  # the usual answer takes no lock
            return None
        return await self._change(lambda db: rows.oldest_queued(db, kinds), change)

    async def begin(
        self, lease: Lease, event: str = "", note: str | None = None
    ) -> TaskRecord | None:
        """Record the beginning, an event and a note: from now on it is not repeated after a
        crash."""

        def change(task: TaskRecord, now: float) -> TaskRecord:
            if task.state is not STARTING:  # only answers end `input_required`
                raise TaskRefused(f"the task is {task.state}: it has begun already")
            begun = task.moved(RUNNING, now)
            return begun if note is None else replace(begun, note=self._cut(note))

        find = self._with_event(lease, event) if event else self._held(lease)
        return await self._change(find, change)

    async def renew(self, lease: Lease) -> TaskRecord | None:
        """Extend a lease by its length; return the task, which may have a request to cancel."""

        def change(task: TaskRecord, _: float) -> TaskRecord:
            assert task.lease is not None
            until = self._clocks.steady() + lease.seconds
            return replace(task, lease=replace(task.lease, until=until))

        return await self._change(self._held(lease), change, publish=False)

    async def progress(self, lease: Lease, text: str) -> TaskRecord | None:
        """Set the status message, and append it to the events."""
        text = self._cut(text)

        def change(task: TaskRecord, now: float) -> TaskRecord:
            return replace(task, message=text, updated_at=max(task.updated_at, now))

        return await self._change(self._with_event(lease, text), change)

    async def add_event(self, lease: Lease, text: str) -> TaskRecord | None:
        """Append an event, and leave the status message as it is."""
        return await self._change(self._with_event(lease, text), lambda task, _: task)

    async def annotate(self, lease: Lease, note: str) -> TaskRecord | None:
        """Keep a note for the runner of a task that resumes this one."""
        return await self._change(
            self._held(lease), lambda task, _: replace(task, note=self._cut(note)), publish=False
        )

    async def hold(self, lease: Lease, *, is_held: bool = True) -> TaskRecord | None:
        """Keep a task beyond its time until `let_go`, or end that."""
        return await self._change(
            self._held(lease), lambda task, _: replace(task, is_held=is_held), publish=False
        )

    async def withdraw(self, lease: Lease, keys: Collection[str]) -> TaskRecord | None:
        """Remove questions that need no answer any more."""

        def change(task: TaskRecord, now: float) -> TaskRecord:
            left = tuple(one for one in task.questions if one.key not in keys)
            if left == task.questions:
                return task
            kept = replace(task, questions=left, updated_at=max(task.updated_at, now))
            if kept.pending or kept.state is not INPUT_REQUIRED:
                return kept
            return kept.moved(RUNNING, now)

        return await self._change(self._held(lease), change)

    async def ask(self, lease: Lease, questions: Sequence[bytes]) -> TaskRecord | None:
        """Add questions, under new keys; the task waits for all of their answers."""
        if any(len(body) > self._limits.max_question for body in questions):
            raise TaskRefused(f"a question exceeds the limit of {self._limits.max_question} bytes")
        added = tuple(TaskQuestion(secrets.token_urlsafe(16), body) for body in questions)

        def change(task: TaskRecord, now: float) -> TaskRecord:
            every = task.questions + added
            if len(every) > self._limits.questions:
                raise TaskRefused(f"a task has at most {self._limits.questions} questions at once")
            if task.state is not INPUT_REQUIRED:
                task = task.moved(INPUT_REQUIRED, now)
            return replace(task, questions=every, updated_at=max(task.updated_at, now))

        return await self._change(self._held(lease), change)

    @_to_the_end
    async def take_answers(self, lease: Lease) -> dict[str, bytes] | None:
        """Return the answers by key, each once."""
        find = self._held(lease)

        def job(db: sqlite3.Connection) -> dict[str, bytes] | None:
            task = find(db)
            if task is None:
                return None
            taken = {each.key: each.answer for each in task.questions if each.answer is not None}
            if taken:
                rows.save(db, replace(task, questions=task.pending), self._limits)
            return taken

        return await self._database.write(job)

    @_to_the_end
    async def finish(
        self,
        lease: Lease,
        state: TaskState,
        result: bytes | None = None,
        message: str = "",
        usage: Mapping[str, float] | None = None,
        *,
        is_error: bool = False,
    ) -> TaskRecord | None:
        """Finish a task with its result, unless the lease was lost; it never changes again."""
        if state not in FINISHED:
            raise ValueError(f"{state} is not a state of finished tasks")
        if result is not None and len(result) > self._limits.max_result:
            raise TaskRefused(f"the result exceeds the limit of {self._limits.max_result} bytes")
        stored = None if result is None else await self._put(result)

        def job(db: sqlite3.Connection) -> tuple[TaskRecord | None, list[str]]:
            task = self._held(lease)(db)
            if task is None:
                return None, []
            if stored is not None:
                rows.add_payload(db, task.id, "result", stored)
            now, words = self._clocks.wall(), self._cut(message)
            done = task.finished(state, now, words, usage or task.usage, is_error)
            rows.save(db, done, self._limits)
            older = rows.surplus(db, done, self._limits.kept, now - self._limits.grace_s)
            return done, rows.remove(db, older)

        done, removed = await self._database.write(job)
        if done is None:
            await self._remove(stored)
        else:
            self._watches.publish(done)
        self._payloads.remove(removed)
        return done

    # For the operator

    @_to_the_end
    async def recover(self, live: Collection[str] = ()) -> list[TaskRecord]:
        """Queue or interrupt the tasks whose leases have expired; return them.

        Repeatable tasks start again wherever they were; others only if not begun. Leases with
        the tokens `live` are those of a worker that could not renew them, and still runs.
        """

        def lost(db: sqlite3.Connection) -> list[TaskRecord]:
            now = self._clocks.steady()
            leases = [(task, task.lease) for task in rows.leased(db)]
            return [
                task
                for task, lease in leases
                if lease is None or not (lease.is_valid(now) or lease.token in live)
            ]

        def job(db: sqlite3.Connection) -> list[TaskRecord]:
            now = self._clocks.wall()
            return [
                rows.save(db, task.recovered(now, self._limits), self._limits) for task in lost(db)
            ]

        if not await self._database.read(lost):  # the usual case takes no lock
            return []
        recovered = await self._database.write(job)
        for task in recovered:
            self._watches.publish(task)
        return recovered

    async def let_go(self, id: str) -> TaskRecord | None:
        """End the hold of a task: its work was collected or discarded."""
        return await self._change(
            lambda db: rows.by_id(db, id),
            lambda task, _: replace(task, is_held=False) if task.is_held else task,
        )

    async def prune(self) -> int:
        """Remove the finished tasks that have expired, and stray files; return how many tasks."""
        now = self._clocks.wall()
        if self._has_jumped(now):
            return 0
        return await self._remove_all(lambda db: rows.expired(db, now))

    async def remove_finished(self, principal: str) -> int:
        """Remove all finished tasks of a principal but those that are held, and stray files; return
        how many tasks."""
        return await self._remove_all(lambda db: rows.finished(db, principal))

    @_to_the_end
    async def _remove_all(self, find: Callable[[sqlite3.Connection], list[str]]) -> int:
        def job(db: sqlite3.Connection) -> tuple[int, list[str]]:
            ids = find(db)
            return len(ids), rows.remove(db, ids)

        if not await self._database.read(lambda _: True):
            return 0  # there is no store yet
        count, removed = await self._database.write(job)
        await asyncio.to_thread(self._payloads.remove, removed)
        known = await self._database.read(rows.files) or set()
        await asyncio.to_thread(self._payloads.sweep, known)
        return count

    async def close(self) -> None:
        """Finish all operations, and close the database."""
        await asyncio.gather(*self.unfinished, return_exceptions=True)
        await self._database.close()

    def _new(self, principal: str, kind: str, ttl_s: float | None) -> TaskRecord:
        now = self._clocks.wall()
        return TaskRecord(
            id=f"{ID_PREFIX}{secrets.token_urlsafe(24)}",
            principal=principal,
            kind=kind,
            idempotency_key=new_key(),
            created_at=now,
            updated_at=now,
            ttl_s=_clamped(ttl_s, self._limits.max_ttl_s),
        )

    def _leased(self, task: TaskRecord, owner: str, lease_s: float) -> TaskRecord:
        """Return a task with a new lease; a queued one is then starting."""
        if task.state is QUEUED:
            task = task.moved(STARTING, self._clocks.wall())
        return task.leased(owner, secrets.token_urlsafe(16), lease_s, self._clocks.steady())

    @_to_the_end
    async def _add(self, task: TaskRecord, input: bytes) -> TaskRecord:
        limits = self._limits
        if len(input) > limits.max_input:
            raise TaskRefused(f"the input exceeds the limit of {limits.max_input} bytes")

        def check(db: sqlite3.Connection) -> None:
            if rows.unfinished_count(db, task.principal) >= limits.in_progress:
                raise _too_many(limits)

        def job(db: sqlite3.Connection) -> TaskRecord:
            if task.resumes and (earlier := rows.successor(db, task.resumes)) is not None:
                return earlier
            check(db)
            rows.insert(db, task, limits)
            rows.add_payload(db, task.id, "input", stored)
            return task

        if self._payloads.is_large(input):  # a task that is refused needs no file
            await self._database.read(check)
        stored = await self._put(input)
        try:
            added = await self._database.write(job)
        except TaskRefused:
            await self._remove(stored)
            raise
        if added is not task:
            await self._remove(stored)
        return added

    async def _put(self, data: bytes) -> rows.Payload:
        if self._payloads.is_large(data):
            return await asyncio.to_thread(self._payloads.put, data)
        return self._payloads.put(data)

    async def _remove(self, payload: rows.Payload | None) -> None:
        """Remove the file of a payload that no task has; after a failure, `prune` removes it."""
        if payload is not None and payload[1] is not None:
            await asyncio.to_thread(self._payloads.remove, [payload[1]])

    async def _payload(self, task: TaskRecord, name: str) -> bytes | None:
        found = await self._database.read(lambda db: rows.payload(db, task.id, name))
        if found is None:
            return None
        if found[1] is None:
            return self._payloads.get(found)
        return await asyncio.to_thread(self._payloads.get, found)

    def _visible(self, db: sqlite3.Connection, principal: str, id: str) -> TaskRecord | None:
        known = id if len(id) <= _MAX_ID and id.isascii() else ""
        return rows.visible(db, principal, known, self._clocks.wall())

    def _with_event(
        self, lease: Lease, text: str
    ) -> Callable[[sqlite3.Connection], TaskRecord | None]:
        """Find the leased task, and append an event to it."""
        text = self._cut(text)

        def find(db: sqlite3.Connection) -> TaskRecord | None:
            task = self._held(lease)(db)
            if task is not None:
                rows.add_event(db, task.id, self._clocks.wall(), text, self._limits.events)
            return task

        return find

    @staticmethod
    def _held(lease: Lease) -> Callable[[sqlite3.Connection], TaskRecord | None]:
        """Find the leased task, unless the lease was lost."""

        def find(db: sqlite3.Connection) -> TaskRecord | None:
            task = rows.by_id(db, lease.task_id)
            if task is None or task.lease is None or task.lease.token != lease.token:
                return None
            return task

        return find

    @_to_the_end
    async def _change(
        self,
        find: Callable[[sqlite3.Connection], TaskRecord | None],
        change: _Change,
        publish: bool = True,
    ) -> TaskRecord | None:
        """Find a task and replace it, in one transaction."""

        def job(db: sqlite3.Connection) -> tuple[TaskRecord | None, bool]:
            task = find(db)
            if task is None:
                return None, False
            changed = change(task, self._clocks.wall())
            if changed is task:
                return task, False
            return rows.save(db, changed, self._limits), True

        task, is_changed = await self._database.write(job)
        if task is not None and is_changed and publish:
            self._watches.publish(task)
        return task

    def _cut(self, text: str) -> str:
        return text[: self._limits.text].encode(errors="replace").decode()

    def _has_jumped(self, now: float) -> bool:
        """True if the wall clock was set since the last time: tasks may only seem old then."""
        offset, before = now - self._clocks.steady(), self._offset
        self._offset = offset
        return abs(offset - before) > _JUMP_S


def tasks_in_memory(
    limits: TaskLimits = _DEFAULT_LIMITS, clocks: Clocks = _DEFAULT_CLOCKS
) -> TaskStore:
    """Return a store that ends with this process."""
    return TaskStore(MemoryDatabase(rows.FORMAT), None, limits, clocks)


def tasks_in_folder(
    folder: str, limits: TaskLimits = _DEFAULT_LIMITS, clocks: Clocks = _DEFAULT_CLOCKS
) -> TaskStore:
    """Return the store in a folder, which other processes may use too."""
    path = os.path.join(folder, STORE_FILE)
    return TaskStore(FileDatabase(path, rows.FORMAT), f"{path}.files", limits, clocks)


def _too_many(limits: TaskLimits) -> TaskRefused:
    count = limits.in_progress
    reached = f"{counted(count, 'task')} {'is' if count == 1 else 'are'} in progress"
    return TaskRefused(f"{reached}, which is the limit: wait for one to finish, or cancel one")


def _seq(cursor: str) -> int | None:
    is_number = cursor.isascii() and cursor.isdigit() and len(cursor) <= _MAX_DIGITS
    return int(cursor) if is_number else None


def _clamped(ttl_s: float | None, longest_s: float) -> float:
    """The time to keep a task; without a `ttl`, and for any too long, the longest."""
    if ttl_s is None:
        return longest_s
    return min(ttl_s, longest_s) if ttl_s > 0 else 0.0
