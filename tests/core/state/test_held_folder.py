"""Folders that are held: their paths do not matter any more, and links are not followed."""

import os
from pathlib import Path

import pytest

from portico.core.state.held_folder import HeldFolder


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    (folder / "inner").mkdir(parents=True)
    (folder / "file").write_text("theirs")
    return folder


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    (tmp_path / "inside").mkdir()
    return tmp_path / "inside"


def test_a_folder_that_is_replaced_by_a_link_is_still_the_same(inside: Path, outside: Path) -> None:
    with HeldFolder.at(str(inside)) as held:
        inside.rename(inside.with_name("moved"))
        inside.symlink_to(outside)
        held.write("name", b"ours")
        held.remove("file")
    assert (inside.with_name("moved") / "name").read_bytes() == b"ours"
    assert (outside / "file").read_text() == "theirs"


def test_links_are_not_opened(inside: Path, outside: Path) -> None:
    (inside / "folder").symlink_to(outside)
    (inside / "file").symlink_to(outside / "file")
    with HeldFolder.at(str(inside)) as held:
        with pytest.raises(NotADirectoryError):
            held.inner("folder")
        with pytest.raises(NotADirectoryError), held.below("folder", "inner", is_made=True):
            pass
        with pytest.raises(OSError, match="symbolic links"):
            held.read("file", 100)


def test_a_link_is_replaced_by_a_file(inside: Path, outside: Path) -> None:
    (inside / "file").symlink_to(outside / "file")
    with HeldFolder.at(str(inside)) as held:
        held.write("file", b"ours")
        (inside / "file.lock").symlink_to(outside / "file")
        with pytest.raises(FileExistsError):
            held.write("file", b"more")
    assert (inside / "file").read_bytes() == b"ours"
    assert (outside / "file").read_text() == "theirs"


def test_everything_is_removed_but_what_links_lead_to(inside: Path, outside: Path) -> None:
    os.makedirs(inside / "a" / "b" / "c")
    (inside / "a" / "b" / "file").touch()
    for place in (inside, inside / "a", inside / "a" / "b" / "c"):
        (place / "link").symlink_to(outside)
    (inside / "a" / "b" / "c").chmod(0)
    (inside / "a" / "b").chmod(0o500)
    with HeldFolder.at(str(inside)) as held:
        for name in ("missing", "link", "a"):
            held.remove(name)
    assert list(inside.iterdir()) == []
    assert {path.name for path in outside.iterdir()} == {"file", "inner"}
