"""Files are written whole or not at all, and leave no drafts."""

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from portico.core.state import files


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file"


def test_a_new_file_is_for_the_user_alone(path: Path) -> None:
    old = os.umask(0)
    try:
        files.replace(str(path), b"new")
    finally:
        os.umask(old)
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_creating_never_replaces(path: Path) -> None:
    files.create(str(path), b"first")
    with pytest.raises(FileExistsError):
        files.create(str(path), b"second")
    assert path.read_bytes() == b"first"
    assert os.listdir(path.parent) == ["file"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failure_leaves_the_old_file_and_no_draft(
    path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path.write_bytes(b"old")

    def fail(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(KeyboardInterrupt):
        files.replace(str(path), b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(path.parent) == ["file"]


def test_a_draft_is_as_open_to_others_as_the_file_it_is_like(path: Path) -> None:
    path.write_bytes(b"old")
    path.chmod(0o640)
    with files.draft(str(path), b"new", like=str(path)) as made:
        assert stat.S_IMODE(os.stat(made).st_mode) == 0o640
    assert os.listdir(path.parent) == ["file"]


def test_links_and_large_files_are_not_read(path: Path) -> None:
    path.write_bytes(b"12345")
    assert files.read(str(path), 5)[0] == b"12345"
    with pytest.raises(OSError, match="too large"):
        files.read(str(path), 4)
    link = path.with_name("link")
    link.symlink_to(path)
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        files.read(str(link), 5)


def test_the_newest_files_are_kept(tmp_path: Path) -> None:
    for age, name in enumerate(("a.x", "b.x", "c.x", "d.y")):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    files.keep_newest(2, str(tmp_path), ".x")
    assert sorted(os.listdir(tmp_path)) == ["a.x", "b.x", "d.y"]
