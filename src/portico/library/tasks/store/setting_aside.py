"""A database of tasks that sets a damaged record aside: the other tasks continue."""

import sqlite3
from collections.abc import Awaitable, Callable
from typing import TypeVar

from portico.core.state.database import Database, DatabaseJob
from portico.library.tasks.store import rows

T = TypeVar("T")
R = TypeVar("R")


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
