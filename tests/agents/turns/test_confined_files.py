"""Files stay in their folder: links, `..` and races do not lead out."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.agents.turns.confined_files import MAX_FILE, ConfinedFiles
from portico.core.model.errors import McpError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "secret").write_text("secret")
    (inside / "a.txt").write_text("one\ntwo\nthree\n")
    return inside


def test_a_file_is_read_as_a_whole_or_by_lines(folder: Path) -> None:
    files = ConfinedFiles(str(folder))
    path = files.resolve(str(folder / "a.txt"))
    assert files.read(path) == "one\ntwo\nthree\n"
    assert files.read(path, 2) == "two\nthree\n"
    assert files.read(path, 2, 1) == "two\n"
    assert files.read(path, None, 1) == "one\n"
    assert files.read(path, 0, 0) == ""
    assert files.read(path, 9, 9) == ""


@given(st.lists(st.sampled_from(["a", "\n", "\r\n", "é\x0b\u2028"])), *[st.integers(0, 9)] * 2)
def test_lines_are_counted_as_editors_count_them(
    tmp_path_factory: pytest.TempPathFactory, parts: list[str], first: int, limit: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "lines.txt"
    path.write_bytes("".join(parts).encode())
    with path.open(newline="\n") as file:
        lines = file.readlines()
    files = ConfinedFiles(str(path.parent))
    found = files.read(files.resolve(str(path)), first + 1, limit)
    assert found == "".join(lines[first : first + limit])


def test_one_line_far_down_a_large_file_is_found(folder: Path) -> None:
    (folder / "long.txt").write_text("".join(f"line {n}\n" for n in range(1, 100_001)))
    files = ConfinedFiles(str(folder))
    path = files.resolve(str(folder / "long.txt"))
    assert files.read(path, 99_999, 1) == "line 99999\n"
    assert files.read(path, 99_999) == "line 99999\nline 100000\n"
    assert files.read(path, 100_001, 5) == ""


def test_a_file_is_written_with_the_folders_that_it_needs(folder: Path) -> None:
    files = ConfinedFiles(str(folder))
    files.write(files.resolve(str(folder / "x" / "y" / "z.txt")), "new")
    assert (folder / "x" / "y" / "z.txt").read_text() == "new"
    assert os.listdir(folder / "x" / "y") == ["z.txt"]


def test_a_file_that_is_replaced_keeps_its_mode(folder: Path) -> None:
    files = ConfinedFiles(str(folder))
    script = folder / "run.sh"
    script.touch(0o750)
    files.write(files.resolve(str(script)), "#!/bin/sh")
    assert script.stat().st_mode & 0o777 == 0o750


@pytest.mark.parametrize(
    "path", ["../secret", "link", "links/secret", "x/../../secret", "a.txt/../../secret", "loop"]
)
def test_paths_that_lead_out_are_refused(folder: Path, path: str) -> None:
    (folder / "link").symlink_to(folder.parent / "secret")
    (folder / "links").symlink_to(folder.parent)
    (folder / "loop").symlink_to("loop")
    files = ConfinedFiles(str(folder))
    with pytest.raises(McpError):
        files.read(files.resolve(f"{folder}/{path}"))
    with pytest.raises(McpError):
        files.write(files.resolve(f"{folder}/{path}"), "overwritten")
    assert (folder.parent / "secret").read_text() == "secret"


@pytest.mark.parametrize("path", ["", "a.txt", "/etc/passwd", "/", "/x\0y"])
def test_relative_and_foreign_paths_are_refused(folder: Path, path: str) -> None:
    with pytest.raises(McpError):
        ConfinedFiles(str(folder)).resolve(path)


def test_a_link_within_the_folder_is_followed(folder: Path) -> None:
    (folder / "alias").symlink_to("a.txt")
    files = ConfinedFiles(str(folder))
    assert files.read(files.resolve(str(folder / "alias"))).startswith("one")
    files.write(files.resolve(str(folder / "alias")), "changed")
    assert (folder / "alias").is_symlink()
    assert (folder / "a.txt").read_text() == "changed"


def test_a_link_that_appears_after_the_check_is_not_followed(folder: Path) -> None:
    files = ConfinedFiles(str(folder))
    (folder / "sub").mkdir()
    file, inner = files.resolve(str(folder / "new")), files.resolve(str(folder / "sub" / "secret"))
    (folder / "new").symlink_to(folder.parent / "secret")
    (folder / "sub").rmdir()
    (folder / "sub").symlink_to(folder.parent)
    for path in (file, inner):
        with pytest.raises(McpError):
            files.read(path)
        with pytest.raises(McpError):
            files.write(path, "overwritten")
    assert (folder.parent / "secret").read_text() == "secret"


def test_a_hard_link_to_a_file_outside_is_broken_and_not_written_through(folder: Path) -> None:
    os.link(folder.parent / "secret", folder / "same")
    files = ConfinedFiles(str(folder))
    files.write(files.resolve(str(folder / "same")), "mine")
    assert (folder / "same").read_text() == "mine"
    assert (folder.parent / "secret").read_text() == "secret"


def test_other_things_than_text_files_are_refused(folder: Path) -> None:
    files = ConfinedFiles(str(folder))
    os.mkfifo(folder / "pipe")
    (folder / "binary").write_bytes(b"\xff\x00")
    with (folder / "huge").open("wb") as file:
        file.truncate(MAX_FILE + 1)
    for name in ("pipe", "binary", "huge", "."):
        with pytest.raises(McpError):
            files.read(files.resolve(str(folder / name)))
    for name in ("pipe", "."):
        with pytest.raises(McpError):
            files.write(files.resolve(str(folder / name)), "text")
    with pytest.raises(McpError, match="exceeds"):
        files.write(files.resolve(str(folder / "b")), "x" * (MAX_FILE + 1))


def test_a_missing_file_has_its_own_code(folder: Path) -> None:
    files = ConfinedFiles(str(folder))
    with pytest.raises(McpError, match="does not exist") as raised:
        files.read(files.resolve(str(folder / "none" / "x")))
    assert raised.value.code == -32002


@given(st.lists(st.sampled_from(["..", ".", "a", "link", "", "b"]), max_size=6))
def test_every_resolved_path_is_in_the_folder(
    tmp_path_factory: pytest.TempPathFactory, parts: list[str]
) -> None:
    base = tmp_path_factory.getbasetemp() / "confined"
    (base / "a" / "b").mkdir(parents=True, exist_ok=True)
    if not (base / "a" / "link").is_symlink():
        (base / "a" / "link").symlink_to(base.parent)
    files = ConfinedFiles(str(base / "a"))
    try:
        real = files.resolve("/".join([files.folder, *parts]))
    except McpError:
        return
    assert os.path.commonpath([real, files.folder]) == files.folder


def test_a_link_that_appears_above_the_folder_is_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "above" / "task"
    folder.mkdir(parents=True)
    (tmp_path / "other" / "task").mkdir(parents=True)
    (tmp_path / "other" / "task" / "a.txt").write_text("secret")
    files = ConfinedFiles(str(folder))
    (tmp_path / "above").rename(tmp_path / "moved")
    (tmp_path / "above").symlink_to(tmp_path / "other")
    path = str(folder / "a.txt")
    with pytest.raises(McpError, match="outside the folder"):
        files.resolve(path)
    with pytest.raises(McpError, match="cannot open"):  # resolved a moment earlier
        files.read(path)
    with pytest.raises(McpError, match="cannot open"):
        files.write(path, "overwritten")
    assert (tmp_path / "other" / "task" / "a.txt").read_text() == "secret"
