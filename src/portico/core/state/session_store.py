"""The values that components keep for sessions of clients: bounded, typed, and removed with age.

A session is named by an opaque id (`core/state/client_sessions.py`). Processes may share a store.
"""

import math
import os
import sqlite3
import time
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from portico.core.model.errors import SessionError
from portico.core.state.database import Database, DatabaseJob, FileDatabase, MemoryDatabase
from portico.core.state.database_file import DatabaseFormat

T = TypeVar("T")
STORE_FILE = "sessions.db"
_JSON, _BYTES = "json", "bytes"
_PRUNE_S = 3600.0
"""The time between two removals of expired data by one process."""
_RENEW_S = 3600.0
"""A session that is only read is noted as used this often: notes cost a write."""
_BATCH = 1000
_FORMAT = DatabaseFormat(
    "session store",
    0x506F7253,
    (
        """
CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    used_at REAL NOT NULL,
    keys INTEGER NOT NULL,
    bytes INTEGER NOT NULL
);
CREATE INDEX by_use ON sessions (used_at);
CREATE TABLE session_values (
    session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    key BLOB NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('json', 'bytes')),
    value BLOB NOT NULL,
    expires_at REAL,
    UNIQUE (session, key)
);
CREATE INDEX by_expiry ON session_values (expires_at) WHERE expires_at IS NOT NULL;
CREATE TABLE totals (bytes INTEGER NOT NULL);
INSERT INTO totals VALUES (0)
""",
    ),
)


class SessionLimits(Struct, frozen=True):
    """The bounds of a store; sizes are in bytes, and those of all values include their keys."""

    key: int = 1024
    value: int = 1024 * 1024
    keys: int = 10_000
    """The keys of one component in one session."""
    session: int = 64 * 1024 * 1024
    """The values of one component in one session."""
    total: int = 1024 * 1024 * 1024
    """The values of all sessions."""
    idle_s: float = 7 * 86400.0
    """A session that is not used for this long is removed."""


_DEFAULT_LIMITS = SessionLimits()
Stored = tuple[str, bytes]
"""The kind of a value, and its bytes."""


class SessionStore:
    """Values by session and key."""

    def __init__(
        self,
        database: Database,
        limits: SessionLimits = _DEFAULT_LIMITS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self.limits = limits
        self._clock = clock
        self._pruned_at = -math.inf

    async def get(self, session: str, key: str) -> Any:
        """Return a value; raises KeyError if there is none."""
        name, now = self._key(key), self._clock()

        def job(db: sqlite3.Connection) -> tuple[Stored | None, float]:
            used = db.execute("SELECT used_at FROM sessions WHERE id = ?", (session,)).fetchone()
            if used is None or used[0] <= now - self.limits.idle_s:
                return None, now
            return _find(db, session, name, now), used[0]

        found, used_at = await self._database.read(job) or (None, now)
        if abs(now - used_at) > _RENEW_S:
            await self._database.write(lambda db: _note_use(db, session, now))
        if found is None:
            raise KeyError(key)
        return _decoded(found)

    async def set(
        self, session: str, key: str, value: Any, *, expires_in: float | None = None
    ) -> None:
        """Store a value, for this many seconds if given; raises SessionError, and changes nothing,
        if a limit is reached or the value has no JSON form."""
        name, stored = self._key(key), self._encoded(key, value)
        if expires_in is not None and not 0 < expires_in < math.inf:
            raise SessionError(f"expires_in must be more than 0 seconds, not {expires_in}")
        now = self._clock()
        expires_at = None if expires_in is None else now + expires_in

        def job(db: sqlite3.Connection) -> None:
            self._put(db, session, name, stored, now, expires_at)

        await self._write(job, now)

    async def increment(self, session: str, key: str, by: int) -> int:
        """Add to an integer, which is 0 at first, and return it; no other change comes between."""
        name, now = self._key(key), self._clock()

        def job(db: sqlite3.Connection) -> int:
            found, expires_at = _find(db, session, name, now), None
            value = 0 if found is None else _decoded(found)
            if type(value) is not int:
                raise SessionError(f"cannot increment {_shown(key)}: its value is not an integer")
            if found is not None:
                (expires_at,) = db.execute(
                    "SELECT expires_at FROM session_values WHERE session = ? AND key = ?",
                    (session, name),
                ).fetchone()
            value += by
            self._put(db, session, name, self._encoded(key, value), now, expires_at)
            return value

        return await self._write(job, now)

    async def delete(self, session: str, key: str) -> bool:
        """Remove a value; False if there was none."""
        name, now = self._key(key), self._clock()

        def job(db: sqlite3.Connection) -> bool:
            _forget_if_idle(db, session, now - self.limits.idle_s)
            was_there = _find(db, session, name, now) is not None
            _remove(db, session, name)
            return was_there

        return await self._write(job, now)

    async def clear(self, session: str) -> None:
        """Remove all values of a session."""
        await self._write(lambda db: _forget(db, session), self._clock())

    async def keys(self, session: str) -> list[str]:
        """Return the keys of a session, sorted."""
        now = self._clock()

        def job(db: sqlite3.Connection) -> list[tuple[bytes]]:
            return db.execute(
                "SELECT key FROM session_values JOIN sessions ON id = session WHERE session = ? "
                "AND used_at > ? AND (expires_at IS NULL OR expires_at > ?) ORDER BY key",
                (session, now - self.limits.idle_s, now),
            ).fetchall()

        return [key.decode() for (key,) in await self._database.read(job) or ()]

    async def prune(self) -> None:
        """Remove values that have expired, and sessions that were not used for long."""
        now = self._clock()
        while await self._database.write(lambda db: self._prune(db, now)):
            pass

    async def close(self) -> None:
        """Close the database."""
        await self._database.close()

    async def _write(self, job: DatabaseJob[T], now: float) -> T:
        if abs(now - self._pruned_at) > _PRUNE_S:
            self._pruned_at = now
            await self.prune()
        return await self._database.write(job)

    def _put(
        self,
        db: sqlite3.Connection,
        session: str,
        name: bytes,
        stored: Stored,
        now: float,
        expires_at: float | None,
    ) -> None:
        """Replace a value; raises SessionError if that exceeds a limit."""
        limits = self.limits
        _forget_if_idle(db, session, now - limits.idle_s)
        db.execute(
            "INSERT INTO sessions VALUES (?, ?, 0, 0) ON CONFLICT (id) DO UPDATE SET used_at = ?",
            (session, now, now),
        )
        _remove(db, session, name)
        size = len(name) + len(stored[1])
        db.execute(
            "INSERT INTO session_values VALUES (?, ?, ?, ?, ?)",
            (session, name, *stored, expires_at),
        )
        _count(db, session, 1, size)
        query = "SELECT keys, sessions.bytes, totals.bytes FROM sessions, totals WHERE id = ?"
        keys, used, total = db.execute(query, (session,)).fetchone()
        if keys > limits.keys:
            raise SessionError(
                f"this session has {limits.keys} keys, which is the limit; delete some first"
            )
        if used > limits.session:
            raise SessionError(
                f"the values of this session would take {used} bytes, and {limits.session} is the "
                "limit; delete some first"
            )
        if total > limits.total:
            raise SessionError(
                f"the values of all sessions would take {total} bytes, and {limits.total} is the "
                f"limit; delete some, or wait: unused sessions expire after "
                f"{limits.idle_s / 86400:g} days"
            )

    def _prune(self, db: sqlite3.Connection, now: float) -> bool:
        """Remove some expired data; True if there is more."""
        values = db.execute(
            "SELECT session, key FROM session_values WHERE expires_at <= ? LIMIT ?", (now, _BATCH)
        ).fetchall()
        for session, name in values:
            _remove(db, session, name)
        idle = db.execute(
            "SELECT id FROM sessions WHERE used_at <= ? LIMIT ?", (now - self.limits.idle_s, _BATCH)
        ).fetchall()
        for (session,) in idle:
            _forget(db, session)
        return _BATCH in (len(values), len(idle))

    def _key(self, key: str) -> bytes:
        """Return a key as it is stored; raises SessionError if it is not valid."""
        if not isinstance(key, str):
            raise SessionError(f"a key must be a text, not {type(key).__name__}")
        try:
            name = key.encode()
        except UnicodeEncodeError:
            raise SessionError(f"the key {_shown(key)} is not valid Unicode") from None
        if not name:
            raise SessionError("a key must not be empty")
        if len(name) > self.limits.key:
            why = f"it has {len(name)} bytes, and {self.limits.key} is the limit"
            raise SessionError(f"the key {_shown(key)} is too long: {why}")
        return name

    def _encoded(self, key: str, value: Any) -> Stored:
        """Return a value as it is stored; raises SessionError if it has no JSON form, or is too
        large."""
        if isinstance(value, bytes | bytearray | memoryview):
            stored = _BYTES, bytes(value)
        else:
            try:
                stored = _JSON, msgspec.json.encode(value)
                if b"null" in stored[1]:  # NaN would be stored as null
                    _check_finite(msgspec.to_builtins(value))
            except (TypeError, ValueError, OverflowError, RecursionError) as error:
                why = f"the value of {_shown(key)} cannot be stored: {error}"
                raise SessionError(f"{why}; use bytes, or values with a JSON form") from None
        if len(stored[1]) > self.limits.value:
            why = f"it has {len(stored[1])} bytes, and {self.limits.value} is the limit"
            raise SessionError(f"the value of {_shown(key)} is too large: {why}")
        return stored


def sessions_in_memory(
    limits: SessionLimits = _DEFAULT_LIMITS, clock: Callable[[], float] = time.time
) -> SessionStore:
    """Return a store that ends with this process."""
    return SessionStore(MemoryDatabase(_FORMAT), limits, clock)


def sessions_in_folder(
    folder: str, limits: SessionLimits = _DEFAULT_LIMITS, clock: Callable[[], float] = time.time
) -> SessionStore:
    """Return the store in a folder, which other processes may use too."""
    database = FileDatabase(os.path.join(folder, STORE_FILE), _FORMAT)
    return SessionStore(database, limits, clock)


def _find(db: sqlite3.Connection, session: str, name: bytes, now: float) -> Stored | None:
    found: Stored | None = db.execute(
        "SELECT kind, value FROM session_values WHERE session = ? AND key = ? "
        "AND (expires_at IS NULL OR expires_at > ?)",
        (session, name, now),
    ).fetchone()
    return found


def _remove(db: sqlite3.Connection, session: str, name: bytes) -> None:
    found = db.execute(
        "DELETE FROM session_values WHERE session = ? AND key = ? RETURNING length(value)",
        (session, name),
    ).fetchall()
    if found:
        _count(db, session, -1, -(len(name) + found[0][0]))


def _count(db: sqlite3.Connection, session: str, keys: int, size: int) -> None:
    """Add to the counts of a session, and of all."""
    db.execute(
        "UPDATE sessions SET keys = keys + ?, bytes = bytes + ? WHERE id = ?", (keys, size, session)
    )
    db.execute("UPDATE totals SET bytes = bytes + ?", (size,))


def _forget(db: sqlite3.Connection, session: str) -> None:
    """Remove a session."""
    query = "UPDATE totals SET bytes = bytes - (SELECT bytes FROM sessions WHERE id = ?)"
    if db.execute("SELECT 1 FROM sessions WHERE id = ?", (session,)).fetchone():
        db.execute(query, (session,))
        db.execute("DELETE FROM sessions WHERE id = ?", (session,))


def _forget_if_idle(db: sqlite3.Connection, session: str, before: float) -> None:
    """Remove a session that has expired, but was not removed yet."""
    query = "SELECT 1 FROM sessions WHERE id = ? AND used_at <= ?"
    if db.execute(query, (session, before)).fetchone():
        _forget(db, session)


def _note_use(db: sqlite3.Connection, session: str, now: float) -> None:
    db.execute("UPDATE sessions SET used_at = ? WHERE id = ?", (now, session))


def _decoded(stored: Stored) -> Any:
    kind, value = stored
    return value if kind == _BYTES else msgspec.json.decode(value)


def _check_finite(value: Any) -> None:
    """Raise ValueError for a number that JSON does not have."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is not a number of JSON")
    if isinstance(value, dict):
        value = [*value.values()]
    if isinstance(value, list | tuple | set | frozenset):
        for each in value:
            _check_finite(each)


def _shown(key: str) -> str:
    """Return a key for messages."""
    return repr(key[:40] + "..." if len(key) > 40 else key)
