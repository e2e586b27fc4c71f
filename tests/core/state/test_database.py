"""Databases: created, shared, migrated, damaged, without space."""

import asyncio
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from portico.core.state.database import Database, FileDatabase, MemoryDatabase
from portico.core.state.database_file import DatabaseFormat
from portico.core.state.store_error import StoreError
from tests.support.shared import unavailable

FIRST = "CREATE TABLE words (word TEXT NOT NULL UNIQUE)"
SECOND = "ALTER TABLE words ADD COLUMN length INTEGER; UPDATE words SET length = length(word)"
OLD = DatabaseFormat("word store", 77, (FIRST,))
NEW = DatabaseFormat("word store", 77, (FIRST, SECOND))


def add(word: str) -> Callable[[sqlite3.Connection], None]:
    def job(db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO words (word) VALUES (?)", (word,))

    return job


def content(path: Path) -> bytes:
    return path.read_bytes()


def put(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def words(db: sqlite3.Connection) -> list[str]:
    return [word for (word,) in db.execute("SELECT word FROM words ORDER BY rowid")]


@asynccontextmanager
async def opened(path: Path, format: DatabaseFormat = OLD) -> AsyncIterator[FileDatabase]:
    database = FileDatabase(str(path), format)
    try:
        yield database
    finally:
        await database.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "words.db"


async def filled(path: Path, count: int = 200) -> None:
    """A database with some data, closed."""
    async with opened(path) as database:
        await asyncio.gather(*(database.write(add(f"word {n} " + "x" * 200)) for n in range(count)))


@pytest.mark.parametrize("kind", ["memory", "file"])
async def test_a_failing_job_is_undone_alone(kind: str, path: Path) -> None:
    def fails(db: sqlite3.Connection) -> None:
        add("undone")(db)
        raise LookupError("no")

    database: Database = MemoryDatabase(OLD) if kind == "memory" else FileDatabase(str(path), OLD)
    jobs = [database.write(job) for job in (add("a"), fails, add("a"), add("b"))]
    outcomes = await asyncio.gather(*jobs, return_exceptions=True)
    assert [type(outcome).__name__ for outcome in outcomes[:2]] == ["NoneType", "LookupError"]
    assert isinstance(outcomes[2], sqlite3.IntegrityError | StoreError)
    assert outcomes[3] is None
    assert await database.read(words) == ["a", "b"]
    await database.close()


async def test_reading_creates_nothing(path: Path) -> None:
    async with opened(path) as database:
        assert await database.read(words) is None
    assert not path.parent.exists()


async def test_its_files_are_private_and_nothing_else_is_left(path: Path) -> None:
    async with opened(path) as database:
        await database.write(add("a"))
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
        assert modes == dict.fromkeys(("words.db", "words.db-wal", "words.db-shm"), 0o600)
    assert [file.name for file in path.parent.iterdir()] == ["words.db"]
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_each_commit_waits_for_the_disk(path: Path) -> None:
    async with opened(path) as database:
        settings = ("journal_mode", "synchronous", "foreign_keys")
        found = await database.write(
            lambda db: [db.execute(f"PRAGMA {name}").fetchone()[0] for name in settings]
        )
    assert found == ["wal", 2, 1]


async def test_two_databases_on_one_file_see_each_other(path: Path) -> None:
    async with opened(path) as one, opened(path) as two:
        pairs = ((one.write(add(f"1-{n}")), two.write(add(f"2-{n}"))) for n in range(100))
        await asyncio.gather(*(job for pair in pairs for job in pair))
        assert len(await one.read(words) or []) == 200
        assert await one.read(words) == await two.read(words)


async def test_an_older_format_is_migrated(path: Path) -> None:
    await filled(path, 3)
    async with opened(path, NEW) as database:
        rows = await database.read(lambda db: db.execute("SELECT length FROM words").fetchall())
    assert rows == [(207,)] * 3


async def test_a_format_that_becomes_newer_while_it_is_open_is_refused(path: Path) -> None:
    async with opened(path) as old:
        await old.write(add("before"))
        assert await old.read(words) == ["before"]
        async with opened(path, NEW) as new:
            await new.write(add("by the newer one"))
            for job in (old.write(add("after")), old.read(words)):
                with pytest.raises(StoreError) as refused:
                    await job
                told = f"cannot use the word store {path}: it has format 2, of a newer Portico"
                assert str(refused.value).startswith(told)
                assert str(refused.value).endswith("; end it with `portico stop`")
            assert await new.read(words) == ["before", "by the newer one"]


async def test_a_newer_format_is_refused_and_not_changed(path: Path) -> None:
    async with opened(path, NEW) as database:
        await database.write(add("a"))
    before = content(path)
    async with opened(path) as database:
        with pytest.raises(StoreError, match="it has format 2, of a newer Portico; update Portico"):
            await database.write(add("b"))
    assert content(path) == before


def damage_middle(data: bytes) -> bytes:
    return data[:5000] + bytes(4000) + data[9000:]


async def test_a_large_file_is_used_while_it_is_checked_and_refused_if_it_is_damaged(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("portico.core.state.database.LARGE_FILE", 4096)
    await filled(path, 2000)
    damaged = damage_middle(content(path))
    put(path, damaged)

    async def until_refused(database: Database) -> None:
        while await database.read(lambda _: True):
            pass

    async with opened(path) as database:
        assert await database.read(lambda _: True)
        with pytest.raises(StoreError, match=r"damaged.*a copy is in"):
            await asyncio.wait_for(until_refused(database), 60)
        assert content(path) == damaged
        os.replace(path, f"{path}.away")
        await database.write(add("new"))
        assert await database.read(words) == ["new"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:1],
        lambda data: data[:100],
        lambda data: data[:4096],
        lambda data: data[: len(data) // 2],
        lambda data: data[:-1],
        lambda data: data[:-4096],
        damage_middle,
        lambda data: bytes(100) + data[100:],
        lambda data: data[: len(data) // 2] + os.urandom(len(data) - len(data) // 2),
        lambda data: b'{"not": "a database"}',
    ],
)
async def test_a_damaged_file_is_refused_copied_and_not_changed(
    path: Path, damage: Callable[[bytes], bytes]
) -> None:
    await filled(path)
    damaged = damage(content(path))
    put(path, damaged)
    for _ in range(2):
        async with opened(path) as database:
            for work in (database.write(add("new")), database.read(words)):
                with pytest.raises(StoreError, match=r"cannot open the word store .* restore an"):
                    await work
    assert content(path) == damaged
    copies = [file for file in path.parent.iterdir() if ".damaged-" in file.name]
    assert [content(copy) for copy in copies] == [damaged] * (damaged != b"")
    assert not copies or stat.S_IMODE(copies[0].stat().st_mode) == 0o600


async def test_the_file_of_another_program_is_refused(path: Path) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (a)")
    async with opened(path) as database:
        with pytest.raises(StoreError, match="the file is not a word store"):
            await database.write(add("a"))


async def test_a_log_without_its_database_is_refused(path: Path) -> None:
    await filled(path)
    put(path.with_name("words.db-wal"), content(path))
    os.unlink(path)
    async with opened(path) as database:
        with pytest.raises(StoreError, match=r"the file is missing, but its log .*-wal exists"):
            await database.write(add("a"))
    assert "words.db" not in [file.name for file in path.parent.iterdir()]


async def test_damage_that_is_found_later_is_refused_from_then_on(path: Path) -> None:
    await filled(path, 2000)
    async with opened(path) as database:
        await database.write(add("a"))
        put(path, content(path)[:4096].ljust(len(content(path)), b"\xff"))
        with pytest.raises(StoreError, match="word store"):
            await database.write(words)
        with pytest.raises(StoreError, match=r"the file is damaged .* a copy is in"):
            await database.write(add("b"))


async def test_after_a_file_was_moved_away_a_new_one_is_used(path: Path, tmp_path: Path) -> None:
    async with opened(path) as database:
        await database.write(add("old"))
        path.parent.rename(tmp_path / "away")
        await database.write(add("new"))
        assert await database.read(words) == ["new"]
    async with opened(tmp_path / "away" / "words.db") as database:
        assert await database.read(words) == ["old"]


async def test_a_lock_that_stays_is_reported(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("portico.core.state.database_file.BUSY_S", 0.05)
    await filled(path, 1)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        async with opened(path) as database:
            with pytest.raises(StoreError, match="another process has locked it"):
                await database.write(add("a"))
            other.execute("COMMIT")
            await database.write(add("b"))


_FILL = """
import asyncio, resource, sys
from portico.core.state.store_error import StoreError
from tests.core.state.test_database import FileDatabase, OLD, add, words

async def main():
    database = FileDatabase(sys.argv[1], OLD)
    await database.write(add("first"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, hard))
    stored = ["first"]
    try:
        for number in range(1000):
            await database.write(add(f"{number} " + "x" * 500))
            stored.append(f"{number} " + "x" * 500)
    except StoreError as error:
        print(error)
    assert await database.read(words) == stored
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    await database.write(add("last"))
    assert await database.read(words) == [*stored, "last"]
    await database.close()
    print(len(stored) > 1)

asyncio.run(main())
"""


def test_a_full_disk_is_reported_and_loses_nothing(path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", _FILL, str(path)], capture_output=True, text=True, check=False
    )
    assert run.stderr == ""
    error, more = run.stdout.splitlines()
    assert "cannot use the word store" in error
    assert "free space" in error
    assert more == "True"


async def test_a_database_without_room_refuses_what_does_not_fit(path: Path) -> None:
    def too_much(db: sqlite3.Connection) -> None:
        db.execute("PRAGMA max_page_count = 10")
        add("x" * 100_000)(db)

    async with opened(path) as database:
        outcomes = await asyncio.gather(
            *(database.write(job) for job in (add("a"), too_much, add("b"))),
            return_exceptions=True,
        )
        assert [outcomes[0], outcomes[2]] == [None, None]
        assert "the disk is full; free some space and retry" in str(outcomes[1])
        assert await database.read(words) == ["a", "b"]


_WRITE = """
import asyncio, sys
from tests.core.state.test_database import FileDatabase, OLD, StoreError, add

async def main():
    try:
        await FileDatabase(sys.argv[1], OLD).write(add("new"))
    except StoreError as error:
        print(error)

asyncio.run(main())
"""


def without_rights_of_root(*argv: str) -> list[str]:
    """Root may write into every folder, unless it gives up this right."""
    if os.geteuid():
        return [*argv]
    if shutil.which("setpriv") is None:
        unavailable("setpriv, of util-linux, is not there")
    return ["setpriv", "--bounding-set=-dac_override", *argv]


@pytest.mark.parametrize("is_new", [True, False])
async def test_a_read_only_folder_is_reported(path: Path, is_new: bool) -> None:
    await filled(path, 1)
    if is_new:
        os.unlink(path)
    else:
        os.chmod(path, 0o400)
    os.chmod(path.parent, 0o500)
    run = subprocess.run(  # noqa: ASYNC221  (nothing else runs)
        without_rights_of_root(sys.executable, "-c", _WRITE, str(path)),
        capture_output=True,
        text=True,
        check=False,
    )
    os.chmod(path.parent, 0o700)
    assert run.stderr == ""
    assert run.stdout.startswith(f"cannot use the word store {path}: ")
    assert "writable" in run.stdout
    assert len([*path.parent.iterdir()]) == (0 if is_new else 1)
