"""The operations of workers on the tasks that they have leased.

An operation with a lease that another worker has taken, or whose task is finished, changes nothing
and returns None.
"""

import secrets
import sqlite3
from collections.abc import Collection, Mapping, Sequence

from msgspec.structs import replace

from portico.core.model.defaults import LEASE_S
from portico.library.tasks.store import rows
from portico.library.tasks.store.record import (
    FINISHED,
    INPUT_REQUIRED,
    RUNNING,
    STARTING,
    Lease,
    NotAccepted,
    OpenQuestion,
    TaskRecord,
    TaskState,
)
from portico.library.tasks.store.stored_tasks import StoredRecords, to_the_end

_REMOVED_AT_ONCE = 64
"""Finished tasks that the end of another task removes at most, so that none takes long."""


class LeasedRecords(StoredRecords):
    """The tasks of a store, as their workers see them."""

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
        self,
        owner: str,
        kinds: Collection[str],
        lease_s: float = LEASE_S,
        full: Collection[tuple[str, str]] = (),
    ) -> TaskRecord | None:
        """Lease the oldest queued task of these kinds to a worker; None if there is none. A kind at
        a place that is `full` waits."""

        def find(db: sqlite3.Connection) -> TaskRecord | None:
            return rows.oldest_queued(db, kinds, full)

        def change(task: TaskRecord, _: float) -> TaskRecord:
            return self._leased(task, owner, lease_s)

        if await self._database.read(find) is None:  # the usual answer takes no lock
            return None
        return await self._change(find, change)

    async def begin(
        self, lease: Lease, event: str = "", note: str | None = None
    ) -> TaskRecord | None:
        """Record the beginning, an event and a note: from now on it is not repeated after a
        crash."""

        def change(task: TaskRecord, now: float) -> TaskRecord:
            if task.state is not STARTING:  # only answers end `input_required`
                raise NotAccepted(f"the task is {task.state}: it has begun already")
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
        """Keep a task beyond its time until `release_hold`, or end that."""
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
            raise NotAccepted(f"a question exceeds the limit of {self._limits.max_question} bytes")
        added = tuple(OpenQuestion(secrets.token_urlsafe(16), body) for body in questions)

        def change(task: TaskRecord, now: float) -> TaskRecord:
            every = task.questions + added
            if len(every) > self._limits.questions:
                raise NotAccepted(f"a task has at most {self._limits.questions} questions at once")
            if task.state is not INPUT_REQUIRED:
                task = task.moved(INPUT_REQUIRED, now)
            return replace(task, questions=every, updated_at=max(task.updated_at, now))

        return await self._change(self._held(lease), change)

    @to_the_end
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

    @to_the_end
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
            raise NotAccepted(f"the result exceeds the limit of {self._limits.max_result} bytes")
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
            latest = now - self._limits.grace_s
            older = rows.surplus(db, done, self._limits.kept, latest, _REMOVED_AT_ONCE)
            return done, rows.remove(db, older)

        done, removed = await self._database.write(job)
        if done is None:
            await self._remove(stored)
        else:
            self._watches.publish(done, result)
        self._payloads.remove(removed)
        return done
