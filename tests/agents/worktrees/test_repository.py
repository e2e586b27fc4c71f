"""Repositories of all kinds, whose files Portico reads and writes itself."""

import threading
from pathlib import Path

import pytest

from portico.agents.worktrees.collect_changes import apply_to_user, leave_branch
from portico.agents.worktrees.repository import find_repository
from portico.agents.worktrees.worktree import Worktree
from portico.agents.worktrees.worktree_record import WorktreeError
from portico.agents.worktrees.worktrees import Worktrees
from tests.agents.worktrees.repositories import git, names, repository

FILES = {"a": "1\n", "b": "2\n"}


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return repository(tmp_path / "repo", **FILES)


@pytest.fixture
def worktrees(tmp_path: Path) -> Worktrees:
    return Worktrees(str(tmp_path / "state" / "worktrees"))


def changed(worktrees: Worktrees, cwd: Path, id: str = "ptk_task") -> Worktree:
    """A worktree with a change."""
    worktree, _ = worktrees.checked_out(id, id, str(cwd))
    (Path(worktree.record.path) / "b").write_text("changed\n")
    assert worktree.state().files == ("b",)
    return worktree


def test_git_itself_finds_nothing_wrong_with_a_worktree(repo: Path, worktrees: Worktrees) -> None:
    path = Path(changed(worktrees, repo).record.path)
    assert git(path, "status", "--porcelain") == " M b"
    assert git(path, "branch", "--show-current") == "portico/task"
    assert str(path) in git(repo, "worktree", "list")
    git(repo, "worktree", "prune")
    git(path, "commit", "-qam", "agent")
    git(repo, "fsck", "--strict")
    assert git(repo, "log", "--format=%s", "portico/task").splitlines() == ["agent", "first"]


def test_a_commit_on_a_branch_is_whole(repo: Path, worktrees: Worktrees) -> None:
    worktree = changed(worktrees, repo)
    commit = leave_branch(worktree, "all")
    worktree.remove(keeps_branch=True)
    git(repo, "fsck", "--strict", "--full")
    assert git(repo, "show", f"{commit}:b") == "changed"
    assert git(repo, "rev-parse", f"{commit}^") == git(repo, "rev-parse", "main")


def test_a_packed_branch_is_found_moved_and_deleted(repo: Path, worktrees: Worktrees) -> None:
    git(repo, "tag", "-a", "v1", "-m", "annotated")
    first, second = (changed(worktrees, repo, id) for id in ("ptk_one", "ptk_two"))
    git(repo, "pack-refs", "--all")
    commit = leave_branch(first, "all")
    first.remove(keeps_branch=True)
    second.remove()
    assert git(repo, "for-each-ref", "--format=%(refname)").splitlines() == [
        "refs/heads/main",
        "refs/heads/portico/one",
        "refs/tags/v1",
    ]
    assert git(repo, "rev-parse", "portico/one") == commit
    git(repo, "fsck", "--strict")


def test_a_branch_that_the_user_has_checked_out_stays(repo: Path, worktrees: Worktrees) -> None:
    worktree = changed(worktrees, repo)
    git(repo, "checkout", "-q", "--ignore-other-worktrees", "portico/task")
    worktree.remove()
    assert git(repo, "status", "--porcelain") == ""
    assert git(repo, "branch", "--show-current") == "portico/task"


def test_a_shallow_repository_is_enough(repo: Path, worktrees: Worktrees, tmp_path: Path) -> None:
    git(repo, "commit", "-q", "--allow-empty", "-m", "second")
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{repo}", "shallow")
    shallow = tmp_path / "shallow"
    worktree = changed(worktrees, shallow)
    assert apply_to_user(worktree) == ("b",)
    assert git(shallow, "show", f"{leave_branch(worktree, 'all')}:b") == "changed"


def test_a_partial_clone_needs_only_the_objects_of_its_commit(
    repo: Path, worktrees: Worktrees, tmp_path: Path
) -> None:
    (repo / "a").write_text("later\n")
    git(repo, "commit", "-qam", "second")
    git(repo, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "-q", "--filter=blob:none", f"file://{repo}", "partial")
    worktree = changed(worktrees, tmp_path / "partial")
    assert apply_to_user(worktree) == ("b",)
    commit = leave_branch(worktree, "all")
    assert git(tmp_path / "partial", "show", f"{commit}:b") == "changed"


def test_a_repository_with_long_ids(worktrees: Worktrees, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--object-format=sha256", "long")
    (tmp_path / "long" / "b").write_text("b\n")
    git(tmp_path / "long", "add", "b")
    git(tmp_path / "long", "commit", "-qm", "first")
    worktree = changed(worktrees, tmp_path / "long")
    assert len(worktree.record.base) == 64
    assert apply_to_user(worktree) == ("b",)
    assert git(tmp_path / "long", "show", f"{leave_branch(worktree, 'all')}:b") == "changed"


def test_a_worktree_of_the_user_has_its_own_head(
    repo: Path, worktrees: Worktrees, tmp_path: Path
) -> None:
    git(repo, "worktree", "add", "-q", str(tmp_path / "linked"), "-b", "other")
    git(tmp_path / "linked", "commit", "-q", "--allow-empty", "-m", "there")
    worktree = changed(worktrees, tmp_path / "linked")
    assert worktree.record.base == git(repo, "rev-parse", "other")
    assert apply_to_user(worktree) == ("b",)
    assert (tmp_path / "linked" / "b").read_text() == "changed\n"
    assert (repo / "b").read_text() == "2\n"


def test_a_submodule_is_a_repository(repo: Path, worktrees: Worktrees, tmp_path: Path) -> None:
    outer = repository(tmp_path / "outer", c="3\n")
    git(outer, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(repo), "sub")
    worktree = changed(worktrees, outer / "sub")
    assert apply_to_user(worktree) == ("b",)
    assert (outer / "sub" / "b").read_text() == "changed\n"


def test_a_folder_that_only_claims_a_repository_is_refused(repo: Path, tmp_path: Path) -> None:
    for name, made in (("file", False), ("link", True)):
        folder = tmp_path / name
        folder.mkdir()
        if made:
            (folder / ".git").symlink_to(repo / ".git")
        else:
            (folder / ".git").write_text(f"gitdir: {repo}/.git\n")
        with pytest.raises(WorktreeError, match="cannot use the repository of"):
            find_repository(str(folder))


def test_an_agent_cannot_delegate_into_another_repository(
    repo: Path, worktrees: Worktrees, tmp_path: Path
) -> None:
    private = repository(tmp_path / "private", secret="secret\n")
    path = Path(changed(worktrees, repo).record.path)
    (path / ".git").write_text(f"gitdir: {private}/.git\n")
    with pytest.raises(WorktreeError, match="does not name"):
        worktrees.checked_out("ptk_sub", "ptk_sub", str(path))


def test_work_below_a_worktree_is_taken_as_a_branch(repo: Path, worktrees: Worktrees) -> None:
    outer = changed(worktrees, repo)
    inner = changed(worktrees, Path(outer.record.path), "ptk_sub")
    with pytest.raises(WorktreeError, match="is itself the worktree of an agent"):
        apply_to_user(inner)
    assert git(repo, "show", f"{leave_branch(inner, 'inner')}:b") == "changed"


def test_the_users_ignored_files_are_ignored(
    repo: Path, worktrees: Worktrees, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".gitconfig").write_text("[core]\n\texcludesFile = ~/mine\n")
    (tmp_path / "mine").write_text("*.mine\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    (repo / ".git" / "info" / "exclude").write_text("local/\n")
    worktree = changed(worktrees, repo)
    path = Path(worktree.record.path)
    for name in ("x.mine", "local/deep/x", "kept/local/x", "kept/y", ":(top)z/y", ":!z/y"):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text("")
    state = worktree.state()
    assert state.files == (":!z/y", ":(top)z/y", "b", "kept/y")
    assert state.has_ignored
    apply_to_user(worktree)
    assert names(repo) == {"a", *state.files}


def test_files_that_cannot_be_linked_are_copied(
    repo: Path, worktrees: Worktrees, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*words: object, **options: object) -> None:
        raise PermissionError(1, "Operation not permitted")  # as for files of another user

    worktree = changed(worktrees, repo)
    monkeypatch.setattr("os.link", refuse)
    assert worktree.state().files == ("b",)
    assert apply_to_user(worktree) == ("b",)
    assert (repo / "b").read_text() == "changed\n"


def test_no_swap_of_a_folder_brings_files_from_outside(
    repo: Path, worktrees: Worktrees, tmp_path: Path
) -> None:
    """As an agent that runs beside Portico would: it replaces a folder by a link and back."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "x").write_text("secret\n")
    worktree = changed(worktrees, repo)
    folder = Path(worktree.record.path) / "d"
    folder.mkdir()
    (folder / "x").write_text("mine\n")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            folder.rename(folder.with_name("e"))
            folder.symlink_to(tmp_path / "outside")
            folder.unlink()
            folder.with_name("e").rename(folder)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for _ in range(10):
            try:
                tree = worktree.tree()
            except WorktreeError:
                continue  # it has noticed
            listed = git(repo, "--git-dir", worktree.git.path, "ls-tree", "-r", tree)
            assert git(repo, "hash-object", str(tmp_path / "outside" / "x")) not in listed
    finally:
        stop.set()
        swapping.join()
