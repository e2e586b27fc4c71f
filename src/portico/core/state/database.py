"""A small SQLite database behind one port: in a file, or in memory.

A job is a function of a connection. It runs in a transaction of its own, off the event loop, and
its changes are on disk before its caller continues. It may be run twice, so it changes nothing
but the database.
"""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, Protocol, TypeVar

from portico.core.state import database_file
from portico.core.state.database_file import DatabaseFormat
from portico.core.state.store_error import StoreError

T = TypeVar("T")
DatabaseJob = Callable[[sqlite3.Connection], T]
_BATCH = 64
"""Jobs that share one commit, and so one wait for the disk."""
LARGE_FILE = 4 << 20
"""A larger file is checked while it is in use: its first jobs do not wait for that."""


class Database(Protocol):
    """Runs jobs on a database."""

    async def write(self, job: DatabaseJob[T]) -> T:
        """Run a job that changes data; its exception rolls its changes back."""
        ...

    async def read(self, job: DatabaseJob[T]) -> T | None:
        """Run a job that only reads; return None if the database does not exist yet."""
        ...

    async def close(self) -> None:
        """Finish the jobs, and close the database."""
        ...


class MemoryDatabase:
    """A database of this process, which ends with it."""

    def __init__(self, format: DatabaseFormat) -> None:
        self._connection = sqlite3.connect(
            ":memory:", isolation_level=None, check_same_thread=False
        )
        self._connection.execute("PRAGMA foreign_keys = ON")
        database_file.build(self._connection, format)

    async def write(self, job: DatabaseJob[T]) -> T:
        """Run a job that changes data."""
        self._connection.execute("BEGIN")
        try:
            outcome = job(self._connection)
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")
        return outcome

    async def read(self, job: DatabaseJob[T]) -> T | None:
        """Run a job that only reads."""
        return job(self._connection)

    async def close(self) -> None:
        """Discard the data."""
        self._connection.close()


class FileDatabase:
    """A database in a file, which several processes may share; created by the first write."""

    def __init__(self, path: str, format: DatabaseFormat) -> None:
        self._path = path
        self._format = format
        self._opening = Lock()
        self._checked = (0, 0)
        self._is_doubted = False  # was it found to be damaged?
        # Readers never wait for a writer's disk: SQLite's log keeps the old pages for them.
        self._writer = _Worker(self, "BEGIN IMMEDIATE")
        self._reader = _Worker(self, "BEGIN")

    async def write(self, job: DatabaseJob[T]) -> T:
        """Run a job that changes data."""
        return await self._writer.run(job)

    async def read(self, job: DatabaseJob[T]) -> T | None:
        """Run a job that only reads."""
        if not database_file.exists(self._path):
            return None
        return await self._reader.run(job)

    async def close(self) -> None:
        """Finish the jobs, and close the database."""
        for worker in (self._reader, self._writer):
            await asyncio.to_thread(worker.stop)

    def connect(self) -> tuple[sqlite3.Connection, tuple[int, int]]:
        """Open a connection, and return the file's identity too; check the file once."""
        with self._opening:
            if not self._checked[1] or self.identity() != self._checked:
                is_later = not self._is_doubted and database_file.size(self._path) > LARGE_FILE
                database_file.prepare(self._path, self._format, is_whole=not is_later)
                self._checked, self._is_doubted = self.identity(), False
                if is_later:
                    args = (self._checked,)
                    Thread(target=self._check_later, args=args, daemon=True).start()
            try:
                return database_file.connect(self._path), self._checked
            except sqlite3.Error as error:
                raise self.failure(error) from error

    def _check_later(self, identity: tuple[int, int]) -> None:
        """Read all of a large file; if it is damaged, the next job is refused."""
        try:
            database_file.check(self._path, self._format)
        except StoreError:
            with self._opening:
                if self._checked == identity:
                    self._doubt()

    def _doubt(self) -> None:
        """Check the whole file before it is used again."""
        self._checked, self._is_doubted = (0, 0), True

    def is_current(self, identity: tuple[int, int]) -> bool:
        """False if connections to the file must be opened again, after another check."""
        return not self._is_doubted and self.identity() == identity

    def check_format(self, connection: sqlite3.Connection) -> None:
        """Raise StoreError if a newer Portico has changed the format, in a transaction."""
        database_file.check_format(connection, self._path, self._format)

    def identity(self) -> tuple[int, int]:
        """Identify the file, since it may be moved away while it is open."""
        try:
            status = os.stat(self._path)
        except OSError:
            return 0, 0
        return status.st_dev, status.st_ino

    def failure(self, error: Exception) -> StoreError:
        """Explain an error of SQLite; after damage the file is checked again, and refused."""
        if database_file.is_damage(error):
            self._doubt()
        return database_file.explained(error, self._path, self._format)


class _Job:
    """A job, and the future of its caller."""

    def __init__(self, job: DatabaseJob[Any], loop: asyncio.AbstractEventLoop) -> None:
        self.job = job
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()
        self.outcome: Any = None
        self.error: Exception | None = None

    def run(self, connection: sqlite3.Connection) -> None:
        """Run the job; raise its exception if it has changes to undo, or if SQLite failed."""
        changes = connection.total_changes
        try:
            self.outcome, self.error = self.job(connection), None
        except Exception as error:
            if isinstance(error, sqlite3.Error) or connection.total_changes != changes:
                raise
            self.error = error

    def settle(self) -> None:
        """Pass the outcome to the caller, on its event loop."""
        if self.future.done():
            return  # the caller was cancelled
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.outcome)


def _settle(batch: Sequence[_Job]) -> None:
    """Pass the outcomes to their callers; the usual batch wakes one event loop once."""
    for loop in {job.loop for job in batch}:
        own = [job for job in batch if job.loop is loop]
        with suppress(RuntimeError):  # the loop is closed: its callers have ended
            loop.call_soon_threadsafe(_settle_here, own)


def _settle_here(batch: Sequence[_Job]) -> None:
    for job in batch:
        job.settle()


class _Worker:
    """A thread with a connection: takes all waiting jobs, and commits them together."""

    def __init__(self, database: FileDatabase, begin: str) -> None:
        self._database = database
        self._begin = begin
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._connection: sqlite3.Connection | None = None
        self._identity = (0, 0)

    async def run(self, job: DatabaseJob[T]) -> T:
        """Run a job in the thread; a caller that is cancelled does not cancel it."""
        if self._thread is None:
            self._thread = Thread(target=self._work, name="portico-database", daemon=True)
            self._thread.start()
        given = _Job(job, asyncio.get_running_loop())
        self._jobs.put(given)
        outcome: T = await given.future
        return outcome

    def stop(self) -> None:
        """Finish the jobs, and end the thread."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None

    def _work(self) -> None:
        while (first := self._jobs.get()) is not None:
            batch = [first]
            while len(batch) < _BATCH and not self._jobs.empty():
                following = self._jobs.get()
                if following is None:
                    self._jobs.put(None)
                    break
                batch.append(following)
            self._run(batch)
        self._disconnect()

    def _run(self, batch: list[_Job]) -> None:
        try:
            connection = self._connected()
            connection.execute(self._begin)
            self._database.check_format(connection)
            for job in batch:
                job.run(connection)
            connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001  (passed to the callers)
            failure = self._roll_back(error)
        else:
            _settle(batch)
            return
        if len(batch) == 1:
            batch[0].error = failure
            _settle(batch)
        else:  # one of them is the cause; the others succeed
            for job in batch:
                self._run([job])

    def _connected(self) -> sqlite3.Connection:
        if self._connection is not None and not self._database.is_current(self._identity):
            self._disconnect()
        if self._connection is None:
            self._connection, self._identity = self._database.connect()
        return self._connection

    def _roll_back(self, error: Exception) -> Exception:
        """Undo the whole batch; return the error for its callers."""
        if self._connection is not None and self._connection.in_transaction:
            with suppress(sqlite3.Error):  # SQLite rolls back by itself when the disk fails
                self._connection.execute("ROLLBACK")
        if database_file.is_damage(error):
            self._disconnect()
        return self._database.failure(error) if isinstance(error, sqlite3.Error) else error

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
