"""One stored task at a time: found and changed in one transaction, and published.

A damaged record is set aside, and the other tasks continue. Each worker holds a lock as long as its
process lives, and the kernel releases it however that ends. A lease is valid for some time after
that, and is all there is where locks are not supported.
"""

import asyncio
import fcntl
import os
import secrets
import sqlite3
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from portico.core.state.database import Database, DatabaseJob
from portico.core.state.files import make_private
from portico.library.tasks.store import rows
from portico.library.tasks.store.payloads import PayloadFiles
from portico.library.tasks.store.record import (
    QUEUED,
    STARTING,
    Clocks,
    Lease,
    TaskLimits,
    TaskRecord,
)
from portico.library.tasks.store.task_watch import ChangeWatches

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")
_OPEN = os.O_RDWR | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)


class WorkerLocks:
    """The locks of all workers of one store, as files of a folder; without one, none has ended."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self._held: dict[str, int] = {}

    def hold(self, owner: str) -> None:
        """Hold the lock of a worker of this process from now on, if that is possible."""
        if self._folder is None or owner in self._held:
            return
        with suppress(OSError):
            make_private(self._folder)
            handle = os.open(self._path(owner), _OPEN | os.O_CREAT, 0o600)
            self._held[owner] = handle
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:  # an unlocked file would say that the worker has ended
                os.unlink(self._path(owner))

    def has_ended(self, owner: str) -> bool:
        """True if the process of a worker is known to have ended."""
        if self._folder is None or owner in self._held:
            return False
        try:
            handle = os.open(self._path(owner), _OPEN)
        except OSError:
            return False  # its lease decides
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return False
        finally:
            os.close(handle)
        return True

    def sweep(self, needed: set[str]) -> None:
        """Remove the files of workers that have ended, but for those whose tasks need them."""
        if self._folder is None or not os.path.isdir(self._folder):
            return
        for owner in os.listdir(self._folder):
            if owner not in needed and self.has_ended(owner):
                with suppress(OSError):
                    os.unlink(self._path(owner))

    def close(self) -> None:
        """Release the locks of this process, and remove their files."""
        for owner, handle in self._held.items():
            with suppress(OSError):
                os.unlink(self._path(owner))
            os.close(handle)
        self._held.clear()

    def _path(self, owner: str) -> str:
        return os.path.join(self._folder or "", owner)


class SettingAside:
    """Runs jobs on a database, again without each record that turns out to be damaged."""

    def __init__(self, database: Database, wall: Callable[[], float]) -> None:
        self._database = database
        self._wall = wall
        self.report: Callable[[str], None] = lambda _: None
        """Receives a message for each record that is set aside."""

    async def write(self, job: DatabaseJob[T]) -> T:
        """Run a job that changes data."""
        return await self._run(self._database.write, job)

    async def read(self, job: DatabaseJob[T]) -> T | None:
        """Run a job that only reads; return None if the database does not exist yet."""
        return await self._run(self._database.read, job)

    async def close(self) -> None:
        """Finish the jobs, and close the database."""
        await self._database.close()

    async def _run(self, run: Callable[[DatabaseJob[T]], Awaitable[R]], job: DatabaseJob[T]) -> R:
        found: set[int] = set()
        while True:
            try:
                return await run(job)
            except rows.DamagedRecord as damaged:
                if damaged.seq in found:  # it cannot be set aside
                    raise
                found.add(damaged.seq)
                await self._set_aside(damaged)

    async def _set_aside(self, damaged: rows.DamagedRecord) -> None:
        def job(db: sqlite3.Connection) -> bool:
            return rows.set_aside(db, damaged.seq, self._wall())

        if await self._database.write(job):  # another process may have been faster
            self.report(str(damaged))


S = TypeVar("S", bound="StoredRecords")
_Change = Callable[[TaskRecord, float], TaskRecord]


def to_the_end(
    method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Complete an operation even if its caller is cancelled: it may be stored by then."""

    async def shielded(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        running = asyncio.ensure_future(method(self, *args, **kwargs))
        self.unfinished.add(running)
        running.add_done_callback(self.unfinished.discard)
        return await asyncio.shield(running)

    return wraps(method)(shielded)


class StoredRecords:
    """The tasks of one database, and what all operations on them share."""

    def __init__(
        self, database: Database, path: str | None, limits: TaskLimits, clocks: Clocks
    ) -> None:
        """Beside the `path` of the database are the folders of large payloads and of locks."""
        self._database = SettingAside(database, clocks.wall)
        self._payloads = PayloadFiles(None if path is None else f"{path}.files", limits.inline)
        self._limits = limits
        self._clocks = clocks
        self._locks = WorkerLocks(None if path is None else f"{path}.workers")
        self._watches = ChangeWatches()
        self._started_at: float | None = clocks.wall()
        """The time of the start, until the clock was compared with the store."""
        self._offset = clocks.offset()
        self.unfinished: set[asyncio.Future[Any]] = set()
        """Operations whose callers may have left; `close` waits for them."""

    @property
    def limits(self) -> TaskLimits:
        """The bounds of the store."""
        return self._limits

    def report_to(self, report: Callable[[str], None]) -> None:
        """Report each damaged record that is set aside from now on."""
        self._database.report = report

    async def close(self) -> None:
        """Finish all operations, and close the database."""
        await asyncio.gather(*self.unfinished, return_exceptions=True)
        await self._database.close()
        self._locks.close()

    def _leased(self, task: TaskRecord, owner: str, lease_s: float) -> TaskRecord:
        """Return a task with a new lease; a queued one is then starting."""
        self._locks.hold(owner)
        if task.state is QUEUED:
            task = task.moved(STARTING, self._clocks.wall())
        return task.leased(owner, secrets.token_urlsafe(16), lease_s, self._clocks.steady())

    async def _put(self, data: bytes) -> rows.Payload:
        if self._payloads.is_large(data):
            return await asyncio.to_thread(self._payloads.put, data)
        return self._payloads.put(data)

    async def _remove(self, payload: rows.Payload | None) -> None:
        """Remove the file of a payload that no task has; after a failure, `prune` removes it."""
        if payload is not None and payload[1] is not None:
            await asyncio.to_thread(self._payloads.remove, [payload[1]])

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

    @to_the_end
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
