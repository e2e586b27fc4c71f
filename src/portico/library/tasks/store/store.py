"""The store of tasks: every operation on them, durable when it returns.

Clients name a task by principal and id. Workers name it by their lease (`leased_tasks.py`).
"""

import asyncio
import os
import secrets
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from msgspec.structs import replace

from portico.core.model.defaults import LEASE_S
from portico.core.state.database import FileDatabase, MemoryDatabase
from portico.library.tasks.store import rows
from portico.library.tasks.store.leased_tasks import LeasedRecords
from portico.library.tasks.store.record import (
    CANCELLED,
    ID_PREFIX,
    QUEUED,
    RUNNING,
    STORE_FILE,
    SYSTEM_CLOCKS,
    Clocks,
    NotAccepted,
    RunEvent,
    TaskLimits,
    TaskRecord,
    agent_principal,
    new_key,
)
from portico.library.tasks.store.stored_tasks import to_the_end
from portico.library.tasks.store.task_watch import ChangeWatch

_MAX_ID = 64
_MAX_SEQ = (1 << 63) - 1
_MAX_DIGITS = 18
_MAX_NESTING, _MAX_NESTED = 8, 100
"""How deep tasks of agents are looked for, and how many of one agent."""
_JUMP_S = 60.0
REMOVAL_BATCH = 1000
"""Tasks that are removed in one transaction."""
_DEFAULT_LIMITS = TaskLimits()


class RecordPage(NamedTuple):
    """Some of a principal's tasks, newest first; and the cursor of the rest, if there is more."""

    tasks: list[TaskRecord]
    cursor: str | None


class TaskStore(LeasedRecords):
    """The tasks of one database, for clients, workers and the operator."""

    async def room(self, principal: str, place: str = "") -> int:
        """Return how many more tasks a principal may have in progress at a place; raises
        NotAccepted."""
        count = await self._database.read(lambda db: rows.unfinished_count(db, principal, place))
        left = self._limits.in_progress - (count or 0)
        if left <= 0:
            raise _too_many(self._limits, place)
        return left

    async def submit(
        self,
        principal: str,
        kind: str,
        input: bytes,
        ttl_s: float | None = None,
        *,
        place: str = "",
        is_repeatable: bool = False,
        follows: str = "",
        owner: str = "",
        lease_s: float = LEASE_S,
    ) -> TaskRecord:
        """Store a new task, and return it; raise NotAccepted or StoreError if it is not stored.
        A worker that starts it now is its `owner`."""
        task = self._new(principal, kind, ttl_s)
        task = replace(task, place=place, is_repeatable=is_repeatable, follows=follows)
        if owner:
            task = self._leased(task, owner, lease_s)
        return await self._add(task, input)

    async def resume(self, principal: str, id: str) -> TaskRecord | None:
        """Store a task that does the work of an unsuccessful one; the second time, return it."""
        task = await self.get(principal, id)
        input = None if task is None else await self.input(task)
        if task is None or input is None:
            return None
        if not task.is_resumable:
            raise NotAccepted(f"the task is {task.word}: only an unsuccessful one can be resumed")
        # The same key lets a server recognise work that it did before the interruption.
        fresh = replace(
            self._new(principal, task.kind, task.ttl_s),
            place=task.place,
            resumes=task.id,
            idempotency_key=task.idempotency_key,
            is_repeatable=task.is_repeatable,
            follows=task.follows,
            note=task.note,
        )
        return await self._add(fresh, input)

    async def get(self, principal: str, id: str) -> TaskRecord | None:
        """Return a principal's task; None if it is unknown, expired or of another principal."""
        task = await self._database.read(lambda db: self._visible(db, principal, id))
        if task is None or not self._is_left(task):
            return task
        await self._recover(self._is_left)
        return await self._database.read(lambda db: self._visible(db, principal, id))

    async def has_ended(self, id: str) -> bool:
        """True for a task of any principal that is finished, or removed."""
        task = await self._database.read(lambda db: rows.by_id(db, _known(id)))
        if task is not None and self._is_left(task):
            await self._recover(self._is_left)
            task = await self._database.read(lambda db: rows.by_id(db, _known(id)))
        return task is None or task.is_finished

    async def find(self, principal: str, id: str) -> TaskRecord | None:
        """Return a principal's task, or one below it that an agent started."""
        now = self._clocks.wall()

        def job(db: sqlite3.Connection) -> TaskRecord | None:
            found = above = rows.by_id(db, _known(id))
            for _ in range(_MAX_NESTING):
                if above is None or above.principal == principal:
                    break
                above = rows.by_id(db, above.parent) if above.parent else None
            is_below = above is not None and above.principal == principal
            is_kept = found is not None and found.expires_at(self._limits) > now
            return found if is_below and is_kept else None

        return await self._database.read(job)

    async def with_nested(self, tasks: Sequence[TaskRecord]) -> list[tuple[int, TaskRecord]]:
        """Return tasks with their depth, each followed by those that its agent started."""
        now = self._clocks.wall()

        def job(db: sqlite3.Connection) -> list[tuple[int, TaskRecord]]:
            left = [(0, task) for task in reversed(tasks)]
            found = []
            while left:
                depth, task = left.pop()
                found.append((depth, task))
                if depth < _MAX_NESTING:
                    principal = agent_principal(task.id)
                    newest = rows.page(db, principal, now, _MAX_SEQ, _MAX_NESTED)
                    left += [(depth + 1, one) for _, one in newest]
            return found

        return await self._database.read(job) or [(0, task) for task in tasks]

    async def page(
        self, principal: str, count: int = 100, cursor: str | None = None
    ) -> RecordPage | None:
        """Return a principal's tasks, newest first; None if the cursor is not valid."""
        before = _MAX_SEQ if cursor is None else _seq(cursor)
        if before is None:
            return None
        now = self._clocks.wall()

        def job(db: sqlite3.Connection) -> list[tuple[int, TaskRecord]]:
            return rows.page(db, principal, now, before, count + 1)

        found = await self._database.read(job) or []
        if any(self._is_left(task) for _, task in found):
            await self._recover(self._is_left)
            found = await self._database.read(job) or []
        tasks = [task for _, task in found[:count]]
        return RecordPage(tasks, str(found[count - 1][0]) if len(found) > count else None)

    async def input(self, task: TaskRecord) -> bytes | None:
        """Return a task's input; None if the task was removed."""
        return await self._payload(task, "input")

    async def result(self, task: TaskRecord) -> bytes | None:
        """Return a task's result; None if it has none, or if the task was removed."""
        known = self._watches.take_result(task.id)
        return known if known is not None else await self._payload(task, "result")

    async def events(self, task: TaskRecord) -> list[RunEvent]:
        """Return a task's latest events, oldest first."""
        return await self._database.read(lambda db: rows.events(db, task.id)) or []

    async def answer(
        self, principal: str, id: str, answers: Mapping[str, bytes]
    ) -> TaskRecord | None:
        """Store answers to some of a task's questions; unknown and answered keys are ignored.
        Raises NotAccepted."""
        longest = self._limits.max_question

        def change(task: TaskRecord, now: float) -> TaskRecord:
            if any(len(answers.get(question.key, b"")) > longest for question in task.pending):
                raise NotAccepted(f"an answer exceeds the limit of {longest} bytes; send less")
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

    def watch(self, id: str) -> AbstractContextManager[ChangeWatch]:
        """Listen to the changes that this process makes to a task."""
        return self._watches.watch(id)

    async def adopt(
        self,
        principal: str,
        kind: str,
        input: bytes,
        owner: str,
        lease_s: float = LEASE_S,
        ttl_s: float | None = None,
        *,
        place: str = "",
        is_repeatable: bool = False,
        key: str = "",
    ) -> TaskRecord:
        """Store work that a worker has begun already, leased to it; raises as `submit` does. `key`
        is the idempotency key that the work has already used."""
        new = self._new(principal, kind, ttl_s)
        new = replace(new, place=place, state=RUNNING, is_repeatable=is_repeatable)
        if key:
            new = replace(new, idempotency_key=key)
        return await self._add(self._leased(new, owner, lease_s), input)

    # For the operator

    async def recover(self, live: Collection[str] = ()) -> list[TaskRecord]:
        """Queue or interrupt the tasks whose workers have ended, or did not renew their leases;
        return them.

        Repeatable tasks start again wherever they were; others only if not begun. Leases with
        the tokens `live` are those of a worker that could not renew them, and still runs.
        """

        def is_lost(task: TaskRecord) -> bool:
            lease = task.lease
            if lease is None or lease.token in live:
                return lease is None
            # Read after the row: a lease renewed later than `now` looks older than the system.
            return not lease.is_valid(self._clocks.steady()) or self._is_left(task)

        return await self._recover(is_lost)

    def _is_left(self, task: TaskRecord) -> bool:
        """True if the process of a task's worker has ended."""
        return task.lease is not None and self._locks.has_ended(task.lease.owner)

    @to_the_end
    async def _recover(self, is_lost: Callable[[TaskRecord], bool]) -> list[TaskRecord]:
        def lost(db: sqlite3.Connection) -> list[TaskRecord]:
            return [task for task in rows.leased(db) if is_lost(task)]

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

    async def release_hold(self, id: str) -> TaskRecord | None:
        """End the hold of a task: its work was collected or discarded."""
        return await self._change(
            lambda db: rows.by_id(db, id),
            lambda task, _: replace(task, is_held=False) if task.is_held else task,
        )

    async def prune(self) -> int:
        """Remove the finished tasks that have expired, and stray files; return how many tasks.

        None expires for a day after the clock was set, and after a start more than a day later than
        the last use of the store: the clock may be wrong.
        """
        now, started, has_jumped = self._clocks.wall(), self._started_at, self._has_jumped()

        def may_remove(db: sqlite3.Connection) -> bool:
            doubted = has_jumped
            if started is not None:
                doubted |= started - rows.newest_change(db, started) > rows.DAY_S
            return rows.may_remove_by_age(db, now, is_clock_doubted=doubted)

        if not await self._exists():
            return 0
        is_allowed = await self._database.write(may_remove)
        self._started_at = None
        return await self._remove_all(
            lambda db, count: rows.expired(db, now, count) if is_allowed else []
        )

    async def damaged(self) -> list[str]:
        """Return the ids of the tasks whose records are damaged, of all principals."""
        return await self._database.read(rows.damaged) or []

    async def remove_damaged(self) -> int:
        """Remove the tasks whose records are damaged; return how many."""
        return await self._remove_all(rows.damaged)

    async def remove_finished(self, principal: str) -> int:
        """Remove all finished tasks of a principal but those that are held, and stray files; return
        how many tasks."""
        return await self._remove_all(lambda db, count: rows.finished(db, principal, count))

    async def _exists(self) -> bool:
        return bool(await self._database.read(lambda _: True))

    @to_the_end
    async def _remove_all(self, find: Callable[[sqlite3.Connection, int], list[str]]) -> int:
        """Remove what `find` finds, some at a time, so that other changes need not wait."""

        def job(db: sqlite3.Connection) -> tuple[int, list[str]]:
            ids = find(db, REMOVAL_BATCH)
            return len(ids), rows.remove(db, ids)

        if not await self._exists():
            return 0
        count, left = 0, REMOVAL_BATCH
        while left == REMOVAL_BATCH:
            left, removed = await self._database.write(job)
            count += left
            await asyncio.to_thread(self._payloads.remove, removed)
        known = await self._database.read(rows.files) or set()
        await asyncio.to_thread(self._payloads.sweep, known)
        leases = [task.lease for task in await self.in_progress()]
        self._locks.sweep({lease.owner for lease in leases if lease is not None})
        return count

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

    @to_the_end
    async def _add(self, task: TaskRecord, input: bytes) -> TaskRecord:
        limits = self._limits
        if len(input) > limits.max_input:
            raise NotAccepted(f"the input exceeds the limit of {limits.max_input} bytes")

        def check(db: sqlite3.Connection) -> None:
            if rows.unfinished_count(db, task.principal, task.place) >= limits.in_progress:
                raise _too_many(limits, task.place)

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
        except NotAccepted:
            await self._remove(stored)
            raise
        if added is not task:
            await self._remove(stored)
        return added

    async def _payload(self, task: TaskRecord, name: str) -> bytes | None:
        found = await self._database.read(lambda db: rows.payload(db, task.id, name))
        if found is None:
            return None
        if found[1] is None:
            return self._payloads.get(found)
        return await asyncio.to_thread(self._payloads.get, found)

    def _visible(self, db: sqlite3.Connection, principal: str, id: str) -> TaskRecord | None:
        return rows.visible(db, principal, _known(id), self._clocks.wall())

    def _has_jumped(self) -> bool:
        """True if the wall clock was set since the last time."""
        offset, before = self._clocks.offset(), self._offset
        self._offset = offset
        return abs(offset - before) > _JUMP_S


def tasks_in_memory(
    limits: TaskLimits = _DEFAULT_LIMITS, clocks: Clocks = SYSTEM_CLOCKS
) -> TaskStore:
    """Return a store that ends with this process."""
    return TaskStore(MemoryDatabase(rows.FORMAT), None, limits, clocks)


def tasks_in_folder(
    folder: str, limits: TaskLimits = _DEFAULT_LIMITS, clocks: Clocks = SYSTEM_CLOCKS
) -> TaskStore:
    """Return the store in a folder, which other processes may use too."""
    path = os.path.join(folder, STORE_FILE)
    return TaskStore(FileDatabase(path, rows.FORMAT), path, limits, clocks)


def _too_many(limits: TaskLimits, place: str) -> NotAccepted:
    count, name = limits.in_progress, place.partition("@")[0]
    most = f"{count} for {name}" if name else str(count)
    return NotAccepted(f"task limit reached ({most}); wait for one to finish or cancel one")


def _known(id: str) -> str:
    """Return an id that a database can look up; empty for one that is not any task's."""
    return id if len(id) <= _MAX_ID and id.isascii() else ""


def _seq(cursor: str) -> int | None:
    is_number = cursor.isascii() and cursor.isdigit() and len(cursor) <= _MAX_DIGITS
    return int(cursor) if is_number else None


def _clamped(ttl_s: float | None, longest_s: float) -> float:
    """The time to keep a task; without a `ttl`, and for any too long, the longest."""
    if ttl_s is None:
        return longest_s
    return min(ttl_s, longest_s) if ttl_s > 0 else 0.0
