"""Changes merged into the user's files: all of them, or none."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.agents.worktrees.collect_changes import apply_to_user, leave_branch
from portico.agents.worktrees.worktree import Worktree
from portico.agents.worktrees.worktree_record import WorktreeError
from portico.agents.worktrees.worktrees import Worktrees
from tests.agents.worktrees.repositories import git, repository

BASE = {"a": "".join(f"{n}\n" for n in range(12)), "b": "b\n", "c": "c\n"}
Files = Mapping[str, str | None]


def made(folder: Path, files: Mapping[str, str] = BASE) -> tuple[Path, Worktree, Path]:
    """A repository, a worktree of it, and the worktree's folder."""
    repo = repository(folder / "repo", **files)
    worktree, _ = Worktrees(str(folder / "state")).checked_out("ptk_task", "ptk_task", str(repo))
    return repo, worktree, Path(worktree.record.path)


def content(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir() if path.name != ".git"}


def write(folder: Path, files: Files) -> None:
    for name, text in files.items():
        if text is None:
            (folder / name).unlink(missing_ok=True)
        else:
            (folder / name).write_text(text)


def edits() -> st.SearchStrategy[dict[str, str | None]]:
    texts = st.sampled_from((None, "", "x\n", "y", f"first\n{BASE['a']}", f"{BASE['a']}last\n"))
    return st.dictionaries(st.sampled_from(("a", "b", "c", "new")), texts, max_size=4)


@given(edits(), edits())
@settings(max_examples=15, deadline=None)
def test_whatever_both_sides_do_all_is_merged_or_nothing_is_changed(
    mine: Files, theirs: Files
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        repo, worktree, path = made(Path(folder))
        write(repo, mine)
        write(path, theirs)
        before, wanted = content(repo), content(path)
        try:
            apply_to_user(worktree)
        except WorktreeError:
            assert content(repo) == before
            assert any(mine[name] != theirs[name] for name in mine.keys() & theirs.keys())
        else:
            after = content(repo)
            for name in {*BASE, "new"}:
                if wanted.get(name) == BASE.get(name):  # the task did not change it
                    assert after.get(name) == before.get(name)
                elif before.get(name) == BASE.get(name):
                    assert after.get(name) == wanted.get(name)
        assert content(path) == wanted


def test_modes_and_links_are_changes(tmp_path: Path) -> None:
    repo, worktree, path = made(tmp_path)
    (path / "b").chmod(0o755)
    (path / "c").unlink()
    (path / "c").symlink_to("b")
    assert apply_to_user(worktree) == ("b", "c")
    assert os.access(repo / "b", os.X_OK)
    assert (repo / "c").readlink() == Path("b")


def test_settings_of_the_user_do_not_change_the_content(tmp_path: Path) -> None:
    repo, worktree, path = made(tmp_path)
    for key, value in (
        ("apply.whitespace", "fix"),
        ("diff.noprefix", "true"),
        ("diff.context", "0"),
        ("diff.relative", "true"),
        ("diff.mnemonicPrefix", "true"),
        ("diff.external", "false"),
        ("color.ui", "always"),
        ("diff.renames", "copies"),
        ("core.quotePath", "true"),
        ("commit.gpgSign", "true"),
    ):
        git(repo, "config", key, value)
    text = "trailing \t \n\n\n \tindented\nno newline"
    (path / "b").write_text(text)
    (path / "ümlaut").write_text(text)
    assert apply_to_user(worktree) == ("b", "ümlaut")
    assert (repo / "b").read_text() == (repo / "ümlaut").read_text() == text
    assert leave_branch(worktree, "all") == git(repo, "rev-parse", worktree.record.branch)


def test_files_with_carriage_returns_are_merged(tmp_path: Path) -> None:
    repo, worktree, path = made(tmp_path)
    git(repo, "config", "core.autocrlf", "true")
    (repo / "a").write_bytes(f"mine\n{BASE['a']}".replace("\n", "\r\n").encode())
    (path / "a").write_bytes(f"{BASE['a']}theirs\n".replace("\n", "\r\n").encode())
    apply_to_user(worktree)
    merged = f"mine\n{BASE['a']}theirs\n".replace("\n", "\r\n").encode()
    assert (repo / "a").read_bytes() == merged


def test_a_commit_needs_no_configured_author(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo, worktree, path = made(tmp_path)
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    (path / "b").write_text("changed\n")
    commit = leave_branch(worktree, "Change b")
    assert git(repo, "log", "-1", "--format=%an: %s", commit) == "Portico: Change b"
    assert git(repo, "diff", "--name-only", "main", commit) == "b"


def test_another_repository_in_the_users_place_is_refused(tmp_path: Path) -> None:
    repo, _, _ = made(tmp_path)
    linked = tmp_path / "linked"
    git(repo, "worktree", "add", "-q", str(linked), "-b", "other")
    inner, _ = Worktrees(str(tmp_path / "more")).checked_out("ptk_x", "ptk_x", str(linked))
    (Path(inner.record.path) / "b").write_text("inner\n")
    git(repo, "worktree", "remove", "--force", str(linked))
    repository(linked, b="b\n")
    with pytest.raises(WorktreeError, match="is not the repository any more to which"):
        apply_to_user(inner)
    assert (linked / "b").read_text() == "b\n"
    assert git(repo, "show", f"{leave_branch(inner, 'kept')}:b") == "inner"
