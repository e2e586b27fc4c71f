"""The file of a SQLite database: created at once, checked before use, never replaced."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import NamedTuple

from portico.core.state import files
from portico.core.state.checksummed import Damaged, Newer
from portico.core.state.store_error import StoreError

BUSY_S = 10.0
_WAL_LIMIT = 16 << 20
_CHUNK = 1 << 20
_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_ADVICE = {
    sqlite3.SQLITE_FULL: "the disk is full; free some space and retry",
    sqlite3.SQLITE_IOERR: "the disk rejects the data; check its free space and retry",
    sqlite3.SQLITE_READONLY: "the file or its folder is read-only; make both writable",
    sqlite3.SQLITE_CANTOPEN: "its files cannot be opened; make the folder writable",
    sqlite3.SQLITE_BUSY: f"another process has locked it for {BUSY_S:g} s; retry",
}


class DatabaseFormat(NamedTuple):
    """The tables of one kind of database, and how older formats become the newest one."""

    name: str
    """The noun for error messages, such as `task store`."""
    application_id: int
    steps: tuple[str, ...]
    """Step N is the SQL that turns format N into N + 1. A released step never changes."""

    @property
    def number(self) -> int:
        """The newest format."""
        return len(self.steps)


def exists(path: str) -> bool:
    """True if the database, or a remaining part of it, is on disk."""
    return os.path.exists(path) or _has_data(f"{path}-wal")


def size(path: str) -> int:
    """The size of the file, without its log; 0 if there is none."""
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def _has_data(path: str) -> bool:
    """False for an empty file too: checking a database may leave an empty log."""
    return os.path.exists(path) and os.path.getsize(path) > 0


def prepare(path: str, format: DatabaseFormat, *, is_whole: bool = True) -> None:
    """Create the database, or check and migrate it; raise StoreError, leaving it unchanged.

    Unless the check is of the `is_whole` file, it reads no tables.
    """
    if not exists(path):
        with _explaining(path, format):
            _create(path, format)
    check(path, format, is_whole=is_whole)
    with _explaining(path, format), closing(connect(path)) as connection:
        _migrate(connection, format)


def check(path: str, format: DatabaseFormat, *, is_whole: bool = True) -> None:
    """Raise StoreError if the database is damaged, or of a newer Portico; change nothing."""
    try:
        _check(path, format, is_whole=is_whole)
    except Damaged as error:
        raise StoreError(
            f"cannot open the {format.name} {path}: {error}; {_back_up(path)}"
            f"restore an intact copy, or move {path}* away to start with an empty one"
        ) from None
    except Newer as error:
        raise StoreError(f"cannot open the {format.name} {path}: {error}; update Portico") from None
    except (sqlite3.Error, OSError) as error:
        raise explained(error, path, format) from error


def connect(path: str) -> sqlite3.Connection:
    """Open a database for reading and writing; each commit is on disk when it returns."""
    connection = _connect(path, "rw")
    for setting in (
        "PRAGMA synchronous = FULL",
        "PRAGMA foreign_keys = ON",
        "PRAGMA trusted_schema = OFF",
        "PRAGMA cell_size_check = ON",
        f"PRAGMA journal_size_limit = {_WAL_LIMIT}",
    ):
        connection.execute(setting)
    return connection


def check_format(connection: sqlite3.Connection, path: str, format: DatabaseFormat) -> None:
    """Raise StoreError if a newer Portico has migrated the database since it was opened."""
    found = _number(connection, "user_version")
    if found > format.number:
        why = f"it has format {found}, of a newer Portico, which this process does not know"
        raise StoreError(f"cannot use the {format.name} {path}: {why}; end it with `portico stop`")


def build(connection: sqlite3.Connection, format: DatabaseFormat) -> None:
    """Create the tables of an empty database."""
    connection.execute(f"PRAGMA application_id = {format.application_id}")
    _migrate(connection, format)


def explained(error: Exception, path: str, format: DatabaseFormat) -> StoreError:
    """Return the error for users of an error of SQLite or the system."""
    if isinstance(error, OSError):
        why = f"{error.strerror or error}; make the folder writable, with free space"
    else:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        why = _ADVICE.get(code) or f"{error}; check the disk"
    return StoreError(f"cannot use the {format.name} {path}: {why}")


def is_damage(error: Exception) -> bool:
    """True if SQLite found the file to be damaged."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGE


def _connect(path: str, mode: str) -> sqlite3.Connection:
    from urllib.parse import quote

    return sqlite3.connect(
        f"file:{quote(os.path.abspath(path))}?mode={mode}",
        uri=True,
        timeout=BUSY_S,
        isolation_level=None,
        check_same_thread=False,  # a worker opens it, and `close` may run elsewhere
    )


@contextmanager
def _explaining(path: str, format: DatabaseFormat) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise explained(error, path, format) from error


def _create(path: str, format: DatabaseFormat) -> None:
    """Build it beside its place: an empty or partial file there is then always damage."""
    files.make_private(os.path.dirname(path))
    with files.draft(path, b"") as made:
        with closing(_connect(made, "rw")) as connection:
            connection.execute("PRAGMA synchronous = FULL")
            build(connection, format)
            connection.execute("PRAGMA journal_mode = WAL")
        with suppress(FileExistsError):  # another process was faster
            os.link(made, path)
    files.sync_folder(os.path.dirname(path))


def _check(path: str, format: DatabaseFormat, *, is_whole: bool) -> None:
    """Raise Damaged or Newer; read-only, since to open a damaged file for writing changes it."""
    if not os.path.exists(path):
        raise Damaged(f"the file is missing, but its log {path}-wal exists")
    if not _has_data(path):
        raise Damaged("the file is empty")
    try:
        with closing(_connect(path, "ro")) as connection:
            if _number(connection, "application_id") != format.application_id:
                raise Damaged(f"the file is not a {format.name}")
            found = _number(connection, "user_version")
            if found > format.number:
                raise Newer(f"it has format {found}, of a newer Portico")
            outcome = _faults(connection) if is_whole else "ok"
            size = _number(connection, "page_count") * _number(connection, "page_size")
    except sqlite3.DatabaseError as error:
        if is_damage(error):
            raise Damaged(f"the file is damaged ({error})") from None
        raise
    if os.path.getsize(path) < size and not _has_data(f"{path}-wal"):
        raise Damaged(f"the file is shorter than {size} bytes")
    if outcome != "ok":
        raise Damaged(f"the file is damaged ({outcome.splitlines()[-1]})")


def _faults(connection: sqlite3.Connection) -> str:
    """Read all tables; return `ok`, or what is wrong."""
    if connection.execute("PRAGMA foreign_key_check").fetchone():
        return "a row refers to a missing one"
    (outcome,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    return str(outcome)


def _number(connection: sqlite3.Connection, name: str) -> int:
    (number,) = connection.execute(f"PRAGMA {name}").fetchone()
    return int(number)


def _migrate(connection: sqlite3.Connection, format: DatabaseFormat) -> None:
    if _number(connection, "user_version") == format.number:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Read again: another process may have migrated it before we had the lock.
        for step in format.steps[_number(connection, "user_version") :]:
            for statement in step.split(";"):
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {format.number}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # SQLite rolls back by itself when the disk fails
            connection.execute("ROLLBACK")
        raise


def _back_up(path: str) -> str:
    """Copy the damaged files once, however often they are opened; return the outcome."""
    parts = [*filter(_has_data, (path, f"{path}-wal"))]
    try:
        for part in parts:
            status = os.stat(part)
            copy = f"{part}.damaged-{status.st_mtime_ns:x}-{status.st_size:x}"
            if not os.path.exists(copy):
                _copy(part, copy)
    except OSError as error:
        return f"it could not be copied ({error.strerror}); "
    return f"a copy is in {path}*.damaged-*; " if parts else ""


def _copy(source: str, target: str) -> None:
    with open(source, "rb") as reader, files.draft(target, b"") as made:
        with open(made, "ab") as writer:
            while chunk := reader.read(_CHUNK):
                writer.write(chunk)
            writer.flush()
            os.fsync(writer.fileno())
        os.replace(made, target)
