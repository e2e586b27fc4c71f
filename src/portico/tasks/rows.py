"""Tasks as rows of a database: its format, and the queries."""

import math
import sqlite3
from collections.abc import Iterable, Iterator
from hashlib import blake2b

from msgspec import json

from portico.state.database_file import DatabaseFormat
from portico.state.store_error import StoreError
from portico.tasks.record import QUEUED, TaskEvent, TaskLimits, TaskRecord

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
FORMAT = DatabaseFormat("task store", 0x506F7254, (_SCHEMA, _FINISHED_AT))
Payload = tuple[bytes | None, str | None, str]
"""The data, or the name of its file; and its digest."""


def insert(db: sqlite3.Connection, task: TaskRecord, limits: TaskLimits) -> None:
    """Add a task."""
    db.execute(
        "INSERT INTO tasks "
        "(id, principal, kind, state, open, expires_at, finished_at, resumes, record) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (task.id, task.principal, task.kind, *_changing(task, limits)),
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
            "SELECT record FROM tasks WHERE principal = ? AND id = ? AND expires_at > ?",
            (principal, id, now),
        )
    )


def by_id(db: sqlite3.Connection, id: str) -> TaskRecord | None:
    """Find a task for its worker."""
    return _one(db.execute("SELECT record FROM tasks WHERE id = ?", (id,)))


def successor(db: sqlite3.Connection, id: str) -> TaskRecord | None:
    """Find the task that resumes this one."""
    return _one(db.execute("SELECT record FROM tasks WHERE resumes = ?", (id,)))


def page(
    db: sqlite3.Connection, principal: str, now: float, before: int, count: int
) -> list[tuple[int, TaskRecord]]:
    """A principal's tasks with their sequence numbers, newest first, from `before` down."""
    rows = db.execute(
        "SELECT seq, record FROM tasks WHERE principal = ? AND seq < ? AND expires_at > ? "
        "ORDER BY seq DESC LIMIT ?",
        (principal, before, now, count),
    )
    return [(seq, _decoded(record)) for seq, record in rows]


def unfinished_count(db: sqlite3.Connection, principal: str) -> int:
    """The number of a principal's unfinished tasks."""
    (count,) = db.execute(
        "SELECT count(*) FROM tasks WHERE principal = ? AND open = 1", (principal,)
    ).fetchone()
    return int(count)


def oldest_queued(db: sqlite3.Connection, kinds: Iterable[str]) -> TaskRecord | None:
    """The task of these kinds that has waited longest."""
    return _one(
        db.execute(
            "SELECT record FROM tasks WHERE open = 1 AND state = ? "
            "AND kind IN (SELECT value FROM json_each(?)) ORDER BY seq LIMIT 1",
            (str(QUEUED), _ENCODE(list(kinds)).decode()),
        )
    )


def leased(db: sqlite3.Connection) -> Iterator[TaskRecord]:
    """All tasks that a worker has, or had when it ended."""
    rows = db.execute(
        "SELECT record FROM tasks WHERE open = 1 "
        "AND state IN ('starting', 'running', 'input_required') ORDER BY seq"
    )
    yield from (_decoded(record) for (record,) in rows.fetchall())


def surplus(db: sqlite3.Connection, task: TaskRecord, kept: int, before: float) -> list[str]:
    """The ids of the oldest finished tasks of a task's principal and scope, beyond the number to
    keep: they ended before a time, and are not held.

    Each process counts the tasks of its own scope only, since another may keep more.
    """
    rows = db.execute(
        "SELECT id FROM (SELECT id, finished_at FROM tasks "
        "WHERE principal = ? AND substr(kind, instr(kind, '@') + 1) = ? "
        "AND open = 0 AND expires_at < ? "
        "ORDER BY finished_at DESC LIMIT -1 OFFSET ?) WHERE finished_at < ?",
        (task.principal, task.kind[task.kind.find("@") + 1 :], math.inf, kept, before),
    )
    return [id for (id,) in rows]


def finished(db: sqlite3.Connection, principal: str) -> list[str]:
    """The ids of all finished tasks of a principal, without those that are held."""
    rows = db.execute(
        "SELECT id FROM tasks WHERE principal = ? AND open = 0 AND expires_at < ?",
        (principal, math.inf),
    )
    return [id for (id,) in rows]


def expired(db: sqlite3.Connection, now: float) -> list[str]:
    """The ids of all finished tasks whose time has passed."""
    rows = db.execute("SELECT id FROM tasks WHERE open = 0 AND expires_at <= ?", (now,))
    return [id for (id,) in rows]


def remove(db: sqlite3.Connection, ids: Iterable[str]) -> list[str]:
    """Remove tasks; return the names of their files, to be removed after the commit."""
    names: list[str] = []
    for id in ids:
        rows = db.execute("SELECT file FROM payloads WHERE task = ? AND file IS NOT NULL", (id,))
        names += (name for (name,) in rows)
        db.execute("DELETE FROM tasks WHERE id = ?", (id,))
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


def events(db: sqlite3.Connection, id: str) -> list[TaskEvent]:
    """The kept events of a task, oldest first."""
    rows = db.execute("SELECT number, at, text FROM events WHERE task = ? ORDER BY number", (id,))
    return [TaskEvent(*row) for row in rows]


def _one(rows: sqlite3.Cursor) -> TaskRecord | None:
    row = rows.fetchone()
    return None if row is None else _decoded(row[0])


def _encoded(task: TaskRecord) -> bytes:
    """The record after its digest: SQLite notices damage to its structure, not to values."""
    record = _ENCODE(task)
    return blake2b(record, digest_size=_DIGEST).digest() + record


def _decoded(stored: bytes) -> TaskRecord:
    record = stored[_DIGEST:]
    if blake2b(record, digest_size=_DIGEST).digest() != stored[:_DIGEST]:
        raise StoreError("cannot read a task: its record is damaged; restore a copy of the store")
    return _DECODE(record)
