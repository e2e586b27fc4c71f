"""Prompts and finished tasks of agents as rows of a database: its format, and the queries."""

import sqlite3
from collections.abc import Iterable

from portico.core.state.database_file import DatabaseFormat
from portico.library.tasks.store.record import Clocks

_SCHEMA = """
CREATE TABLE clock (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    now REAL NOT NULL,
    steady REAL NOT NULL
);
CREATE TABLE prompts (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    agent TEXT NOT NULL,
    at REAL NOT NULL,
    key TEXT NOT NULL
);
CREATE INDEX prompts_of ON prompts (agent, at);
CREATE TABLE finished (
    task TEXT PRIMARY KEY,
    agent TEXT NOT NULL,
    at REAL NOT NULL,
    tokens REAL,
    cost REAL
) WITHOUT ROWID;
CREATE INDEX finished_of ON finished (agent, at);
CREATE TABLE outcomes (
    agent TEXT NOT NULL,
    outcome TEXT NOT NULL,
    tasks INTEGER NOT NULL,
    PRIMARY KEY (agent, outcome)
) WITHOUT ROWID;
CREATE TABLE amounts (
    agent TEXT NOT NULL,
    unit TEXT NOT NULL,
    amount REAL NOT NULL,
    tasks INTEGER NOT NULL,
    PRIMARY KEY (agent, unit)
) WITHOUT ROWID
"""
FORMAT = DatabaseFormat("quota store", 0x506F7251, (_SCHEMA,))
TOKENS = "tokens"
"""The unit of tokens; that of a cost is `cost ` and its currency."""
COST = "cost "
STAGE = "stage "
"""The unit of the seconds that a stage of tasks took is this and its name."""
PERMISSION = "permission "
"""The unit of permission requests is this and their decision."""


def present(db: sqlite3.Connection, clocks: Clocks) -> float:
    """Return the time of quotas, which never goes back.

    It is the wall clock, unless that was set back. Then it continues with the steady clock: after a
    restart of the system that one shows less than has passed, never more.
    """
    row = db.execute("SELECT now, steady FROM clock").fetchone()
    if row is None:
        return clocks.wall()
    now, steady = map(float, row)
    return max(clocks.wall(), now + max(0.0, clocks.steady() - steady))


def advance(db: sqlite3.Connection, clocks: Clocks) -> float:
    """Return the time of quotas, and keep it."""
    now = present(db, clocks)
    db.execute(
        "INSERT INTO clock VALUES (1, ?, ?) "
        "ON CONFLICT (id) DO UPDATE SET now = excluded.now, steady = excluded.steady",
        (now, clocks.steady()),
    )
    return now


def add_prompt(db: sqlite3.Connection, agent: str, now: float, kept_s: float, key: str) -> None:
    """Count a prompt, and remove those of which no window is left."""
    db.execute("DELETE FROM prompts WHERE agent = ? AND at <= ?", (agent, now - kept_s))
    db.execute("INSERT INTO prompts (agent, at, key) VALUES (?, ?, ?)", (agent, now, key))


def remove_prompt(db: sqlite3.Connection, agent: str, key: str) -> None:
    """Do not count a prompt any more."""
    db.execute("DELETE FROM prompts WHERE agent = ? AND key = ?", (agent, key))


def prompt_count(db: sqlite3.Connection, agent: str, after: float) -> int:
    """The number of prompts after a time."""
    (count,) = db.execute(
        "SELECT count(*) FROM prompts WHERE agent = ? AND at > ?", (agent, after)
    ).fetchone()
    return int(count)


def prompt_at(db: sqlite3.Connection, agent: str, after: float, number: int) -> float:
    """The time of a prompt after a time, counted from 0."""
    (at,) = db.execute(
        "SELECT at FROM prompts WHERE agent = ? AND at > ? ORDER BY at LIMIT 1 OFFSET ?",
        (agent, after, number),
    ).fetchone()
    return float(at)


def last_prompt(db: sqlite3.Connection, agent: str) -> float | None:
    """The time of the latest prompt that is kept."""
    (at,) = db.execute("SELECT max(at) FROM prompts WHERE agent = ?", (agent,)).fetchone()
    return None if at is None else float(at)


def spent(
    db: sqlite3.Connection, agent: str, column: str, after: float
) -> list[tuple[float, float]]:
    """The times and amounts of `tokens` or `cost` after a time, oldest first."""
    rows = db.execute(
        f"SELECT at, {column} FROM finished "  # noqa: S608  (one of two names)
        f"WHERE agent = ? AND at > ? AND {column} > 0 ORDER BY at",
        (agent, after),
    )
    return [(float(at), float(amount)) for at, amount in rows]


def add_finished(
    db: sqlite3.Connection,
    task: str,
    agent: str,
    now: float,
    tokens: float | None,
    cost: float | None,
    kept_s: float,
) -> bool:
    """Keep the usage of a task; False if that was done before."""
    db.execute("DELETE FROM finished WHERE agent = ? AND at <= ?", (agent, now - kept_s))
    added = db.execute(
        "INSERT INTO finished VALUES (?, ?, ?, ?, ?) ON CONFLICT (task) DO NOTHING",
        (task, agent, now, tokens, cost),
    )
    return added.rowcount > 0


def add_outcome(db: sqlite3.Connection, agent: str, outcome: str) -> None:
    """Count a finished task by its outcome."""
    db.execute(
        "INSERT INTO outcomes VALUES (?, ?, 1) "
        "ON CONFLICT (agent, outcome) DO UPDATE SET tasks = tasks + 1",
        (agent, outcome),
    )


def add_amount(db: sqlite3.Connection, agent: str, unit: str, amount: float) -> None:
    """Add a reported amount to its total."""
    db.execute(
        "INSERT INTO amounts VALUES (?, ?, ?, 1) ON CONFLICT (agent, unit) "
        "DO UPDATE SET amount = amount + excluded.amount, tasks = tasks + 1",
        (agent, unit, amount),
    )


def outcomes(db: sqlite3.Connection) -> Iterable[tuple[str, str, int]]:
    """The number of tasks by agent and outcome."""
    return db.execute("SELECT agent, outcome, tasks FROM outcomes ORDER BY agent, outcome")


def amounts(db: sqlite3.Connection) -> Iterable[tuple[str, str, float, int]]:
    """The totals by agent and unit, each with the number of tasks that reported it."""
    return db.execute("SELECT agent, unit, amount, tasks FROM amounts ORDER BY agent, unit")
