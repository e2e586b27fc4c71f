"""Tasks as rows of a database: its format, and the queries."""

import math
import sqlite3
from collections.abc import Iterable, Iterator
from hashlib import blake2b

from msgspec import json

from portico.core.state.database_file import DatabaseFormat
from portico.core.state.store_error import StoreError
from portico.library.tasks.store.record import QUEUED, RunEvent, TaskLimits, TaskRecord

DAY_S = 86400.0
_DIGEST = 16
_ENCODE = json.Encoder().encode
_DECODE = json.Decoder(TaskRecord).decode
_SCHEMA = """
CREATE TABLE tasks (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    principal TEXT NOT NULL,
    kind TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('queued', 'starting', 'running', 'input_required',
        'completed', 'failed', 'cancelled', 'interrupted')),
    open INTEGER NOT NULL CHECK (open IN (0, 1)),
    expires_at REAL NOT NULL,
    resumes TEXT,
    record BLOB NOT NULL CHECK (typeof(record) = 'blob')
);
CREATE UNIQUE INDEX visible ON tasks (principal, id, expires_at);
CREATE UNIQUE INDEX resumed ON tasks (resumes) WHERE resumes IS NOT NULL;
CREATE INDEX pages ON tasks (principal);
CREATE INDEX unfinished ON tasks (state, kind) WHERE open = 1;
CREATE INDEX open_of ON tasks (principal, open);
CREATE INDEX expiring ON tasks (expires_at) WHERE open = 0;
CREATE TABLE payloads (
    task TEXT NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    name TEXT NOT NULL CHECK (name IN ('input', 'result')),
    data BLOB,
    file TEXT,
    digest TEXT NOT NULL,
    PRIMARY KEY (task, name)
) WITHOUT ROWID;
CREATE INDEX files ON payloads (file) WHERE file IS NOT NULL;
CREATE TABLE events (
    task TEXT NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    at REAL NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (task, number)
) WITHOUT ROWID
"""
# The record follows a digest of 16 bytes.
_FINISHED_AT = """
ALTER TABLE tasks ADD COLUMN finished_at REAL;
UPDATE tasks SET finished_at =
    json_extract(CAST(substr(record, 17) AS TEXT), '$.finished_at') WHERE open = 0;
CREATE INDEX finished_of ON tasks (principal, substr(kind, instr(kind, '@') + 1), finished_at)
    WHERE open = 0
"""
_KEPT = """
ALTER TABLE tasks ADD COLUMN damaged_at REAL;
CREATE INDEX damaged ON tasks (damaged_at) WHERE damaged_at IS NOT NULL;
CREATE TABLE ages (seen_at REAL NOT NULL, kept_until REAL NOT NULL)
"""
_PLACES = """
ALTER TABLE tasks ADD COLUMN place TEXT NOT NULL DEFAULT '';
DROP INDEX open_of;
CREATE INDEX open_at ON tasks (principal, place) WHERE open = 1
"""
# Each index answers its query alone: finding what to remove reads no task.
_REMOVALS = """
DROP INDEX finished_of;
CREATE INDEX finished_of ON tasks
    (principal, substr(kind, instr(kind, '@') + 1), finished_at, expires_at, id) WHERE open = 0;
CREATE INDEX finished_when ON tasks (finished_at) WHERE open = 0
"""
FORMAT = DatabaseFormat(
    "task store", 0x506F7254, (_SCHEMA, _FINISHED_AT, _KEPT, _PLACES, _REMOVALS)
)
_UNDAMAGED = "SELECT seq, id, record FROM tasks WHERE damaged_at IS NULL"
_EACH = "SELECT value FROM json_each(?)"
_FINISHED_IN_SCOPE = (
    "FROM tasks WHERE principal = ? AND substr(kind, instr(kind, '@') + 1) = ? "
    "AND open = 0 AND expires_at < ?"
)
Payload = tuple[bytes | None, str | None, str]
"""The data, or the name of its file; and its digest."""


class DamagedRecord(StoreError):
    """The record of one task cannot be read."""

    def __init__(self, seq: int, id: str) -> None:
        self.seq = seq
        why = "its record is damaged; it was set aside, and the other tasks continue"
        how = "`portico tasks prune --damaged` removes it"
        super().__init__(f"cannot read task {id}: {why}; {how}")


def insert(db: sqlite3.Connection, task: TaskRecord, limits: TaskLimits) -> None:
    """Add a task."""
    db.execute(
        "INSERT INTO tasks "
        "(id, principal, kind, place, state, open, expires_at, finished_at, resumes, record) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (task.id, task.principal, task.kind, task.place, *_changing(task, limits)),
    )


def save(db: sqlite3.Connection, task: TaskRecord, limits: TaskLimits) -> TaskRecord:
    """Replace a task, and return it."""
    db.execute(
        "UPDATE tasks SET "
        "state = ?, open = ?, expires_at = ?, finished_at = ?, resumes = ?, record = ? "
        "WHERE id = ?",
        (*_changing(task, limits), task.id),
    )
    return task


def _changing(task: TaskRecord, limits: TaskLimits) -> tuple[object, ...]:
    return (
        str(task.state),
        int(not task.is_finished),
        task.expires_at(limits),
        task.finished_at,
        task.resumes or None,
        _encoded(task),
    )


def visible(db: sqlite3.Connection, principal: str, id: str, now: float) -> TaskRecord | None:
    """Find a principal's task.

    Unknown, foreign and expired ids take the same time: one search in one index finds none.
    """
    return _one(
        db.execute(
            "SELECT seq, id, record FROM tasks "
            "WHERE principal = ? AND id = ? AND expires_at > ? AND damaged_at IS NULL",
            (principal, id, now),
        )
    )


def by_id(db: sqlite3.Connection, id: str) -> TaskRecord | None:
    """Find a task for its worker."""
    return _one(db.execute(f"{_UNDAMAGED} AND id = ?", (id,)))


def successor(db: sqlite3.Connection, id: str) -> TaskRecord | None:
    """Find the task that resumes this one."""
    return _one(db.execute(f"{_UNDAMAGED} AND resumes = ?", (id,)))


def page(
    db: sqlite3.Connection, principal: str, now: float, before: int, count: int
) -> list[tuple[int, TaskRecord]]:
    """A principal's tasks with their sequence numbers, newest first, from `before` down."""
    rows = db.execute(
        f"{_UNDAMAGED} AND principal = ? AND seq < ? AND expires_at > ? ORDER BY seq DESC LIMIT ?",
        (principal, before, now, count),
    )
    return [(row[0], _decoded(*row)) for row in rows.fetchall()]


def unfinished_count(db: sqlite3.Connection, principal: str, place: str) -> int:
    """The number of a principal's unfinished tasks at one place."""
    (count,) = db.execute(
        "SELECT count(*) FROM tasks WHERE principal = ? AND place = ? AND open = 1",
        (principal, place),
    ).fetchone()
    return int(count)


def oldest_queued(
    db: sqlite3.Connection, kinds: Iterable[str], full: Iterable[tuple[str, str]] = ()
) -> TaskRecord | None:
    """The task of these kinds that has waited longest; none of a kind at a place that is `full`."""
    return _one(
        db.execute(
            f"{_UNDAMAGED} AND open = 1 AND state = ? AND kind IN ({_EACH}) "
            f"AND json_array(kind, place) NOT IN ({_EACH}) ORDER BY seq LIMIT 1",
            (
                str(QUEUED),
                _ENCODE(list(kinds)).decode(),
                _ENCODE([_ENCODE(pair).decode() for pair in full]).decode(),
            ),
        )
    )


def leased(db: sqlite3.Connection) -> Iterator[TaskRecord]:
    """All tasks that a worker has, or had when it ended."""
    rows = db.execute(
        f"{_UNDAMAGED} AND open = 1 "
        "AND state IN ('starting', 'running', 'input_required') ORDER BY seq"
    )
    yield from (_decoded(*row) for row in rows.fetchall())


def surplus(
    db: sqlite3.Connection, task: TaskRecord, kept: int, before: float, count: int
) -> list[str]:
    """The ids of some of the oldest finished tasks of a task's principal and scope, beyond the
    number to keep: they ended before a time, and are not held.

    Each process counts the tasks of its own scope only, since another may keep more.
    """
    scope = (task.principal, task.kind[task.kind.find("@") + 1 :], math.inf)
    if kept:
        last = db.execute(
            f"SELECT finished_at {_FINISHED_IN_SCOPE} ORDER BY finished_at DESC LIMIT 1 OFFSET ?",
            (*scope, kept - 1),
        ).fetchone()
        if last is None:
            return []
        before = min(before, last[0])
    rows = db.execute(
        f"SELECT id {_FINISHED_IN_SCOPE} AND finished_at < ? ORDER BY finished_at LIMIT ?",
        (*scope, before, count),
    )
    return [id for (id,) in rows]


def finished(db: sqlite3.Connection, principal: str, count: int) -> list[str]:
    """The ids of some finished tasks of a principal, without those that are held."""
    rows = db.execute(
        "SELECT id FROM tasks WHERE principal = ? AND open = 0 AND expires_at < ? LIMIT ?",
        (principal, math.inf, count),
    )
    return [id for (id,) in rows]


def expired(db: sqlite3.Connection, now: float, count: int) -> list[str]:
    """The ids of some finished tasks whose time has passed."""
    rows = db.execute(
        "SELECT id FROM tasks WHERE open = 0 AND expires_at <= ? LIMIT ?", (now, count)
    )
    return [id for (id,) in rows]


def set_aside(db: sqlite3.Connection, seq: int, now: float) -> bool:
    """Keep a damaged task for ever, where no query but `damaged` finds it; False if another has
    done that, or removed it."""
    return (
        db.execute(
            "UPDATE tasks SET damaged_at = ?, open = 0, expires_at = ?, resumes = NULL "
            "WHERE seq = ? AND damaged_at IS NULL",
            (now, math.inf, seq),
        ).rowcount
        == 1
    )


def damaged(db: sqlite3.Connection, count: int = -1) -> list[str]:
    """The ids of the tasks that were set aside, oldest first; all, or some of them."""
    rows = db.execute(
        "SELECT id FROM tasks WHERE damaged_at IS NOT NULL ORDER BY seq LIMIT ?", (count,)
    )
    return [id for (id,) in rows]


def newest_change(db: sqlite3.Connection, before: float) -> float:
    """The latest time before another at which this store was used; that time if it was not."""
    (latest,) = db.execute(
        "SELECT max(at) FROM (SELECT max(seen_at) AS at FROM ages WHERE seen_at < ? "
        "UNION ALL SELECT max(finished_at) FROM tasks WHERE open = 0 AND finished_at < ?)",
        (before, before),
    ).fetchone()
    return before if latest is None else float(latest)


def may_remove_by_age(db: sqlite3.Connection, now: float, *, is_clock_doubted: bool) -> bool:
    """False for a day after the clock was doubted: tasks may only seem old. Record the time."""
    row = db.execute("SELECT kept_until FROM ages").fetchone()
    kept_until: float = 0.0 if row is None else row[0]
    if is_clock_doubted or kept_until - now > DAY_S:  # by a clock that was ahead
        kept_until = now + DAY_S
    db.execute("DELETE FROM ages")
    db.execute("INSERT INTO ages VALUES (?, ?)", (now, kept_until))
    return now >= kept_until


def remove(db: sqlite3.Connection, ids: Iterable[str]) -> list[str]:
    """Remove tasks; return the names of their files, to be removed after the commit."""
    every = _ENCODE(list(ids)).decode()
    found = db.execute(
        "SELECT file FROM payloads "
        "WHERE task IN (SELECT value FROM json_each(?)) AND file IS NOT NULL",
        (every,),
    )
    names = [name for (name,) in found]
    db.execute("DELETE FROM tasks WHERE id IN (SELECT value FROM json_each(?))", (every,))
    return names


def add_payload(db: sqlite3.Connection, id: str, name: str, payload: Payload) -> None:
    """Keep an input or a result."""
    db.execute("INSERT INTO payloads VALUES (?, ?, ?, ?, ?)", (id, name, *payload))


def payload(db: sqlite3.Connection, id: str, name: str) -> Payload | None:
    """Find an input or a result."""
    row: Payload | None = db.execute(
        "SELECT data, file, digest FROM payloads WHERE task = ? AND name = ?", (id, name)
    ).fetchone()
    return row


def files(db: sqlite3.Connection) -> set[str]:
    """The names of all files that belong to tasks."""
    return {name for (name,) in db.execute("SELECT file FROM payloads WHERE file IS NOT NULL")}


def add_event(db: sqlite3.Connection, id: str, at: float, text: str, kept: int) -> None:
    """Append an event, and remove the oldest beyond the limit."""
    (last,) = db.execute("SELECT max(number) FROM events WHERE task = ?", (id,)).fetchone()
    number = (last or 0) + 1
    db.execute("INSERT INTO events VALUES (?, ?, ?, ?)", (id, number, at, text))
    db.execute("DELETE FROM events WHERE task = ? AND number <= ?", (id, number - kept))


def events(db: sqlite3.Connection, id: str) -> list[RunEvent]:
    """The kept events of a task, oldest first."""
    rows = db.execute("SELECT number, at, text FROM events WHERE task = ? ORDER BY number", (id,))
    return [RunEvent(*row) for row in rows]


def _one(rows: sqlite3.Cursor) -> TaskRecord | None:
    # All of it: a query that a damaged record ends would keep its transaction open.
    found = rows.fetchall()
    return _decoded(*found[0]) if found else None


def _encoded(task: TaskRecord) -> bytes:
    """The record after its digest: SQLite notices damage to its structure, not to values."""
    record = _ENCODE(task)
    return blake2b(record, digest_size=_DIGEST).digest() + record


def _decoded(seq: int, id: str, stored: bytes) -> TaskRecord:
    record = stored[_DIGEST:]
    if blake2b(record, digest_size=_DIGEST).digest() != stored[:_DIGEST]:
        raise DamagedRecord(seq, id)
    return _DECODE(record)
