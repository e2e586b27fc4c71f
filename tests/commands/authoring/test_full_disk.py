"""A full disk under `new`, `compose` and the first `run`: nothing half-written, and the reason."""

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.commands.authoring.composing import composed, done, stranger
from tests.support.running import WAIT_S

MAX_FILE = 8192


class SmallDisk:
    """A disk that is full: a real one where we may mount it, elsewhere a limit for each file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        options = ["-o", "size=64k,mode=700", "tmpfs", str(folder)]
        self.is_real = _quietly("mount", "-t", "tmpfs", *options)

    def fill(self) -> None:
        """Leave no room on a real one."""
        with suppress(OSError), (self.folder / "rest").open("wb", buffering=0) as file:
            while self.is_real:
                file.write(bytes(4096))

    def run(self, home: Path, *words: str | Path) -> "subprocess.CompletedProcess[str]":
        """Run a command."""
        return subprocess.run(
            [sys.executable, "-m", "portico", *map(str, words)],
            cwd=home.parent,
            env={**os.environ, "PORTICO_HOME": str(home)},
            preexec_fn=None if self.is_real else _limit,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )

    def rest(self) -> list[str]:
        """Return the names of all files on it, but those that fill it."""
        found = (path for path in self.folder.rglob("*") if path.is_file())
        return [path.name for path in found if path.name != "rest"]

    def close(self) -> None:
        """Give it back."""
        if self.is_real:
            assert _quietly("umount", str(self.folder))


def _quietly(*command: str) -> bool:
    try:
        return not subprocess.run(command, capture_output=True, check=False).returncode
    except FileNotFoundError:
        return False


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE, MAX_FILE))


def _why(disk: SmallDisk) -> str:
    return "No space left on device" if disk.is_real else "File too large"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    made = SmallDisk(tmp_path / "disk")
    yield made
    made.close()


@pytest.fixture
def large(folder: Path) -> Path:
    """A component that is larger than the limit."""
    path = folder / "large.json"
    path.write_text('{"tools": [], "x": "%s"}' % ("y" * 2 * MAX_FILE))
    return path


@pytest.mark.parametrize("options", [(), ("--force",)])
def test_compose_changes_nothing(disk: SmallDisk, large: Path, options: tuple[str, ...]) -> None:
    out = disk.folder / "one.portico"
    if options:
        out.write_bytes(b"mine")
    disk.fill()
    ran = disk.run(large.parent.parent / "home", "compose", large, "-o", out, *options)
    assert ran.returncode == 1
    assert f"one.portico: cannot be written: {_why(disk)}" in ran.stderr
    assert "nothing was changed" in ran.stderr
    assert disk.rest() == (["one.portico"] if options else [])
    assert not options or out.read_bytes() == b"mine"


def test_a_bundle_whose_approval_has_no_room_is_written(disk: SmallDisk, folder: Path) -> None:
    disk.fill()
    home = disk.folder / "home" if disk.is_real else _unwritable(folder)
    ran = disk.run(home, "compose", folder / "calc.py", "-o", folder / "one.portico")
    assert ran.returncode == 0
    assert "the approval cannot be written: " in ran.stderr
    assert f"then run `portico approve {folder}/one.portico`" in ran.stderr
    assert "every byte verified" in done(folder, "inspect", folder / "one.portico", "--verify")


def _unwritable(folder: Path) -> Path:
    """A home in which nothing can be written: a file is in its place."""
    path = folder.parent / "no-home"
    path.write_text("")
    return path


def test_a_first_run_leaves_nothing_and_works_with_room(disk: SmallDisk, large: Path) -> None:
    bundle = composed(large.parent, large, large.parent / "words.json")
    away = stranger(large.parent)
    disk.fill()
    ran = disk.run(disk.folder / "home", "run", away / bundle.name)
    assert ran.returncode == 1
    assert "it cannot be unpacked to " in ran.stderr
    assert f": {_why(disk)}; make room, or set PORTICO_HOME to another folder" in ran.stderr
    assert not list(disk.folder.rglob("*.draft")) + list(disk.folder.rglob("parts"))
    assert "tools" in done(away, "inspect", f"{sys.executable} -m portico run {away}/one.portico")


def test_a_new_project_is_whole_or_not_there(
    disk: SmallDisk, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.fill()
    if not disk.is_real:
        monkeypatch.setattr(sys.modules[__name__], "MAX_FILE", 100)
    ran = disk.run(folder.parent / "home", "new", "hello", "-o", disk.folder / "hello")
    assert ran.returncode == 1
    assert f"hello: cannot be written: {_why(disk)}; " in ran.stderr
    assert sorted(path.name for path in disk.folder.iterdir() if path.name != "rest") == []


def test_a_name_that_has_no_room_changes_nothing(disk: SmallDisk, folder: Path) -> None:
    config = disk.folder / "home" / "config" / "portico.toml"
    config.parent.mkdir(parents=True)
    text = "# mine\n".ljust(MAX_FILE - 16, "#")
    config.write_text(text)
    disk.fill()
    ran = disk.run(disk.folder / "home", "components", "add", "calc", folder / "calc.py")
    assert ran.returncode == 1
    assert f"{_why(disk)}; the file is unchanged" in ran.stderr
    assert config.read_text() == text
