"""Files that change are reported once each; files that did not change are not reported."""

import asyncio
from contextlib import aclosing
from pathlib import Path

from portico.core.state.file_watcher import FileWatcher
from portico.core.state.files import stamp

INTERVAL_S = 0.01


class Watched:
    """A folder whose files are watched, and the changes so far."""

    def __init__(self, folder: Path, *names: str) -> None:
        self.paths = [folder / name for name in names]
        self.changes: asyncio.Queue[set[str]] = asyncio.Queue()
        self.watcher = self.make()

    def make(self, **known: tuple[int, ...] | None) -> FileWatcher:
        stamps = {str(path): known[path.stem] for path in self.paths if path.stem in known}
        return FileWatcher(lambda: map(str, self.paths), self.changed, INTERVAL_S, stamps)

    async def changed(self, paths: frozenset[str]) -> None:
        await self.changes.put({Path(path).name for path in paths})

    async def next(self) -> set[str]:
        return await asyncio.wait_for(self.changes.get(), 10)

    async def aclose(self) -> None:
        await self.watcher.close()


async def test_only_files_that_changed_are_reported(tmp_path: Path) -> None:
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("1")
    async with aclosing(Watched(tmp_path, "a.py", "b.py")) as watched:
        watched.watcher.start()
        (tmp_path / "a.py").write_text("22")
        assert await watched.next() == {"a.py"}
        (tmp_path / "b.py").write_text("22")
        assert await watched.next() == {"b.py"}


async def test_a_file_that_is_replaced_as_editors_do_is_reported(tmp_path: Path) -> None:
    file, draft = tmp_path / "a.py", tmp_path / "draft"
    file.write_text("1")
    async with aclosing(Watched(tmp_path, "a.py")) as watched:
        watched.watcher.start()
        draft.write_text("1")
        draft.rename(file)
        assert await watched.next() == {"a.py"}
        file.unlink()
        assert await watched.next() == {"a.py"}
        file.write_text("back")
        assert await watched.next() == {"a.py"}


async def test_a_file_that_is_watched_later_is_reported_when_it_changes(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1")
    (tmp_path / "b.py").write_text("1")
    async with aclosing(Watched(tmp_path, "a.py")) as watched:
        watched.watcher.start()
        watched.paths.append(tmp_path / "b.py")
        (tmp_path / "a.py").write_text("22")
        assert await watched.next() == {"a.py"}
        (tmp_path / "b.py").write_text("22")
        assert await watched.next() == {"b.py"}


async def test_a_change_before_the_watch_began_is_found_by_a_known_stamp(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("1")
    before = stamp(str(file))
    file.write_text("22")
    async with aclosing(Watched(tmp_path, "a.py")) as watched:
        watched.watcher = watched.make(a=before)
        watched.watcher.start()
        assert await watched.next() == {"a.py"}
