"""`portico tasks diff`, `collect` and `discard`, on real worktrees of real repositories."""

import asyncio
import io
import json
import os
import shutil
from pathlib import Path

import pytest

from portico.agents.worktrees.worktrees import Worktrees
from portico.commands.cli.main import main
from portico.core.model.context import LOCAL
from portico.library.tasks.store.record import TaskRecord
from portico.library.tasks.store.store import tasks_in_folder
from tests.agents.worktrees.repositories import delegations, git, names, repository, worker_entry
from tests.commands.cli.test_call_terminal import at_terminal
from tests.commands.cli.test_completion import suggested

LINES = "".join(f"{number}\n" for number in range(40))
BINARY = bytes(range(256))


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PORTICO_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "state"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return repository(tmp_path / "project", a__txt=LINES, b__txt="two\n", c__txt="three\n")


def worked(state: Path, cwd: Path, command: str, follows: TaskRecord | None = None) -> TaskRecord:
    """A finished task whose agent has run a command in its worktree."""

    async def run() -> TaskRecord:
        agent = worker_entry("writer", {"shell": command}, {"say": "done"})
        async with delegations(state, agent) as work:
            task, result = await work.run("writer", cwd, follows)
            assert not task.is_error, result.result
            return task

    return asyncio.run(run())


def stored(state: Path, id: str) -> TaskRecord | None:
    async def read() -> TaskRecord | None:
        store = tasks_in_folder(str(state))
        try:
            return await store.get(LOCAL, id)
        finally:
            await store.close()

    return asyncio.run(read())


def path_of(state: Path, task: TaskRecord) -> Path:
    return state / "worktrees" / task.id / "project"


def is_gone(state: Path, repo: Path, task: TaskRecord) -> bool:
    """True if nothing is left of a worktree, and its task may expire."""
    left = stored(state, task.id)
    assert left is not None
    return (
        not left.is_held
        and not (state / "worktrees" / task.id).exists()
        and git(repo, "branch", "--list", "portico*") == ""
        and len(git(repo, "worktree", "list").splitlines()) == 1
    )


def test_a_diff_is_a_patch_with_new_deleted_and_binary_files(
    state: Path, repo: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    (tmp_path / "data").write_bytes(BINARY)
    command = f"echo more >> a.txt; rm b.txt; mv c.txt d.txt; cp {tmp_path}/data 'odd *\tname'"
    task = worked(state, repo, command)
    capfdbinary.readouterr()
    assert main(["tasks", "diff", task.id]) == 0
    patch = capfdbinary.readouterr().out
    copy = repository(tmp_path / "copy", a__txt=LINES, b__txt="two\n", c__txt="three\n")
    (tmp_path / "patch").write_bytes(patch)
    git(copy, "apply", str(tmp_path / "patch"))
    assert names(copy) == {"a.txt", "d.txt", "odd *\tname"}
    assert (copy / "odd *\tname").read_bytes() == BINARY
    assert (copy / "a.txt").read_text() == f"{LINES}more\n"
    assert names(repo) == {"a.txt", "b.txt", "c.txt"}


def test_a_diff_as_json_names_the_files(
    state: Path, repo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = worked(state, repo, "rm b.txt; touch empty")
    assert main(["tasks", "diff", task.id[:12], "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["files_changed"] == ["b.txt", "empty"]
    assert shown["folder"] == str(repo)
    assert shown["worktree"] == str(path_of(state, task))
    assert shown["branch"] == f"portico/{task.id[4:12]}"
    assert "deleted file mode" in shown["patch"]


def test_a_diff_on_a_terminal_shows_no_control_codes_of_files(state: Path, repo: Path) -> None:
    task = worked(state, repo, r"printf '\033]0;evil\007\n' > b.txt")
    with at_terminal("tasks", "diff", task.id) as terminal:
        assert terminal.end() == 0
    assert "\x1b]0;evil" not in terminal.screen
    assert "\\u001b]0;evil" in terminal.screen


def test_a_person_confirms_that_changes_are_discarded(state: Path, repo: Path) -> None:
    task = worked(state, repo, "echo more >> a.txt")
    for answer, code in (("n", 1), ("y", 0)):
        with at_terminal("tasks", "discard", task.id) as terminal:
            terminal.answer("for good? [y/N]", answer)
            assert terminal.end() == code
    assert is_gone(state, repo, task)


def test_collected_changes_are_in_the_users_files(
    state: Path, repo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").write_bytes(BINARY)
    commit = "git -c user.name=A -c user.email=a@b commit -qam agent"
    command = f"echo more >> a.txt; {commit}; rm b.txt; mkdir d; cp {tmp_path}/data d/data"
    task = worked(state, repo, command)
    assert main(["tasks", "collect", task.id]) == 0
    assert capsys.readouterr().out == f"applied 3 files to {repo}\n"
    assert names(repo) == {"a.txt", "c.txt", "d/data"}
    assert (repo / "a.txt").read_text() == f"{LINES}more\n"
    assert (repo / "d/data").read_bytes() == BINARY
    assert git(repo, "diff", "--cached", "--name-only") == ""
    assert is_gone(state, repo, task)
    assert main(["tasks", "collect", task.id]) == 1
    assert "has no changes in a worktree" in capsys.readouterr().err


def test_collected_changes_are_merged_with_the_users_own(state: Path, repo: Path) -> None:
    (repo / "a.txt").write_text(f"mine\n{LINES}")
    (repo / "new.txt").write_text("mine\n")
    (repo / "c.txt").write_text("staged\n")
    git(repo, "add", "c.txt")
    task = worked(state, repo, "echo theirs >> a.txt; mv b.txt moved.txt")
    assert main(["tasks", "collect", task.id]) == 0
    assert (repo / "a.txt").read_text() == f"mine\n{LINES}theirs\n"
    assert names(repo) == {"a.txt", "c.txt", "moved.txt", "new.txt"}
    assert git(repo, "diff", "--cached", "--name-only") == "c.txt"
    assert is_gone(state, repo, task)


def test_changes_are_merged_with_later_commits_of_the_user(state: Path, repo: Path) -> None:
    task = worked(state, repo, "echo theirs >> a.txt")
    (repo / "a.txt").write_text(f"mine\n{LINES}")
    git(repo, "commit", "-qam", "second")
    assert main(["tasks", "collect", task.id]) == 0
    assert (repo / "a.txt").read_text() == f"mine\n{LINES}theirs\n"


def test_changes_that_the_user_has_already_are_no_conflict(state: Path, repo: Path) -> None:
    task = worked(state, repo, "echo same > b.txt; echo same > new.txt; rm c.txt")
    (repo / "b.txt").write_text("same\n")
    (repo / "new.txt").write_text("same\n")
    assert main(["tasks", "collect", task.id]) == 0
    assert names(repo) == {"a.txt", "b.txt", "new.txt"}
    assert is_gone(state, repo, task)


@pytest.mark.parametrize(
    "theirs, mine",
    [
        ("echo theirs > b.txt", "echo mine > b.txt"),
        ("echo theirs > new.txt", "echo mine > new.txt"),
        ("rm b.txt", "echo mine > b.txt"),
        ("echo theirs > b.txt", "rm b.txt"),
        ("echo theirs > b.txt", "mv b.txt renamed.txt"),
        ("printf '\\0theirs' > b.txt", "printf '\\0mine' > b.txt"),
        ("echo theirs > new.txt", "mkdir new.txt; echo mine > new.txt/inner"),
        ("mkdir new; echo theirs > new/inner", "ln -s .. new"),
    ],
)
def test_a_conflict_changes_nothing_and_loses_nothing(
    state: Path, repo: Path, theirs: str, mine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    task = worked(state, repo, f"{theirs}; echo other >> a.txt")
    assert os.system(f"cd '{repo}' && {mine}") == 0  # noqa: S605  (as the user does)
    before = git(repo, "status", "--porcelain", "-uall"), names(repo), content(repo)
    assert main(["tasks", "collect", task.id]) == 1
    told = capsys.readouterr().err
    assert f"cannot collect {task.id}: nothing was changed in {repo}" in told
    assert (git(repo, "status", "--porcelain", "-uall"), names(repo), content(repo)) == before
    assert path_of(state, task).exists()
    left = stored(state, task.id)
    assert left is not None
    assert left.is_held


def content(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in names(folder)}


def test_a_conflict_names_the_files_and_the_way_out(
    state: Path, repo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = worked(state, repo, "echo theirs > b.txt; echo theirs > c.txt; echo theirs >> a.txt")
    (repo / "b.txt").write_text("mine\n")
    assert main(["tasks", "collect", task.id]) == 1
    told = capsys.readouterr().err
    assert "conflict with the task's in b.txt; undo yours, or take the task's as a branch" in told
    assert main(["tasks", "collect", task.id, "--branch"]) == 0
    assert (repo / "b.txt").read_text() == "mine\n"
    assert git(repo, "show", f"portico/{task.id[4:12]}:b.txt") == "theirs"


def test_an_ignored_file_of_the_user_is_not_overwritten(
    state: Path, repo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (repo / ".gitignore").write_text("*.env\n")
    git(repo, "add", ".gitignore")
    git(repo, "commit", "-q", "-m", "ignore")
    (repo / "my.env").write_text("mine\n")
    task = worked(state, repo, "echo theirs > my.env; git add -f my.env")
    assert main(["tasks", "collect", task.id]) == 1
    assert "conflict with the task's in my.env" in capsys.readouterr().err
    assert (repo / "my.env").read_text() == "mine\n"


def test_a_branch_has_the_agents_commits_and_the_rest(
    state: Path, repo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commit = "git -c user.name=A -c user.email=a@b commit -qam agent"
    task = worked(state, repo, f"echo more >> a.txt; {commit}; echo new > new.txt")
    assert main(["tasks", "collect", task.id, "--branch"]) == 0
    branch = f"portico/{task.id[4:12]}"
    assert f"branch {branch} has 2 files changed, as commit " in capsys.readouterr().out
    assert git(repo, "log", "--format=%s", branch).splitlines() == ["do it", "agent", "first"]
    assert f"Portico task {task.id}" in git(repo, "log", "-1", "--format=%B", branch)
    assert git(repo, "diff", "--name-only", "main", branch).splitlines() == ["a.txt", "new.txt"]
    assert git(repo, "status", "--porcelain") == ""
    assert not (state / "worktrees" / task.id).exists()
    git(repo, "merge", "-q", branch)
    assert names(repo) == {"a.txt", "b.txt", "c.txt", "new.txt"}


def test_a_repository_in_the_worktree_is_not_collected_and_not_lost(
    state: Path, repo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = worked(state, repo, "git init -q inner; echo x > inner/file; echo y > new.txt")
    for more in ((), ("--branch",)):
        assert main(["tasks", "collect", task.id, *more]) == 1
        assert "inner/ in" in (told := capsys.readouterr().err)
        assert "repository of its own, which cannot be collected" in told
    assert (path_of(state, task) / "inner" / "file").exists()
    assert "new.txt" not in names(repo)


def test_discarding_needs_a_confirmation(
    state: Path, repo: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    task = worked(state, repo, "echo more >> a.txt")
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert main(["tasks", "discard", task.id]) == 1
    told = capsys.readouterr().err
    assert f"the changes to 1 file in the worktree {path_of(state, task)} of {task.id}" in told
    assert "would be removed for good: confirm it with --yes" in told
    assert path_of(state, task).exists()
    assert main(["tasks", "discard", task.id, "--yes"]) == 0
    assert is_gone(state, repo, task)
    assert (repo / "a.txt").read_text() == LINES


def test_a_damaged_worktree_can_be_discarded(
    state: Path, repo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = worked(state, repo, "mkdir d; echo x > d/x; chmod 500 d")
    (admin,) = (repo / ".git" / "worktrees").iterdir()
    shutil.rmtree(admin)
    assert main(["tasks", "diff", task.id]) == 1
    assert "is damaged" in capsys.readouterr().err
    assert main(["tasks", "discard", task.id, "--yes"]) == 0
    assert is_gone(state, repo, task)


def test_changes_outlive_a_deleted_repository(
    state: Path, repo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = worked(state, repo, "echo more >> a.txt")
    shutil.rmtree(repo)
    assert main(["tasks", "collect", task.id]) == 1
    assert f"{repo / '.git'} is missing; copy the files that you need" in capsys.readouterr().err
    assert (path_of(state, task) / "a.txt").read_text() == f"{LINES}more\n"
    assert main(["tasks", "discard", task.id, "--yes"]) == 0
    assert not (state / "worktrees" / task.id).exists()


def test_a_task_with_changes_never_expires(
    state: Path, repo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = worked(state, repo, "echo more >> a.txt")
    empty = worked(state, repo, "true")
    assert main(["tasks", "prune", "--finished", "--yes"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("removed 1 task\nkept 1 task with changes that were not collected")
    assert kept.id in shown
    assert stored(state, kept.id) == kept
    assert stored(state, empty.id) is None
    assert main(["tasks", "prune", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"removed": 0, "kept": [kept.id]}
    assert main(["tasks", "collect", kept.id]) == 0
    assert main(["tasks", "prune", "--finished", "--yes"]) == 0
    assert stored(state, kept.id) is None


def test_a_task_whose_worktree_was_removed_by_hand_is_let_go(
    state: Path, repo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = (worked(state, repo, "echo more >> a.txt") for _ in range(2))
    for task in (first, second):
        git(repo, "worktree", "remove", "--force", str(path_of(state, task)))
        shutil.rmtree(state / "worktrees" / task.id)
    assert main(["tasks", "collect", first.id]) == 1
    assert "has no changes in a worktree" in capsys.readouterr().err
    left = stored(state, first.id)
    assert left is not None
    assert not left.is_held
    assert main(["tasks", "prune"]) == 0
    left = stored(state, second.id)
    assert left is not None
    assert not left.is_held
    assert os.listdir(state / "worktrees-private") == []


def test_changes_are_found_when_their_task_is_not_in_the_store(
    state: Path, repo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = worked(state, repo, "echo more >> a.txt")
    shutil.rmtree(state / "tasks.db.workers")
    for file in state.glob("tasks.db*"):
        file.unlink()
    assert main(["tasks", "prune"]) == 0
    assert f"kept 1 task with changes that were not collected: {task.id}" in capsys.readouterr().out
    assert main(["tasks", "collect", task.id[:12]]) == 0
    assert (repo / "a.txt").read_text() == f"{LINES}more\n"


def test_changes_of_a_running_task_are_shown_but_not_collected(
    state: Path, repo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = worked(state, repo, "echo more >> a.txt")
    lock = Worktrees(str(state / "worktrees")).lock(task.id)
    assert main(["tasks", "diff", task.id]) == 0
    assert "+more" in capsys.readouterr().out
    for words in (["collect", task.id], ["discard", task.id, "--yes"]):
        assert main(["tasks", *words]) == 1
        assert "a task works in the worktree of" in capsys.readouterr().err
    lock.release()
    assert main(["tasks", "collect", task.id]) == 0


def test_all_tasks_in_a_worktree_have_the_same_changes(
    state: Path, repo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = worked(state, repo, "echo more >> a.txt")
    second = worked(state, repo, "rm b.txt", follows=first)
    assert main(["tasks", "diff", first.id, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files_changed"] == ["a.txt", "b.txt"]
    assert main(["tasks", "collect", first.id, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["collected"] == ["a.txt", "b.txt"]
    assert is_gone(state, repo, first)
    assert is_gone(state, repo, second)


def test_a_task_with_changes_is_shown_with_what_can_be_done(
    state: Path, repo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = worked(state, repo, "echo more >> a.txt")
    assert main(["tasks", "list"]) == 0
    assert "1 task has changes that were not collected; show them with" in capsys.readouterr().out
    assert main(["tasks", "show", task.id]) == 0
    shown = capsys.readouterr().out
    assert "until its changes are collected or discarded" in shown
    assert f"`portico tasks collect {task.id[:12]}`" in shown
    assert task.id in suggested(capsys, "tasks", "collect", "")


@pytest.mark.parametrize(
    "words, why",
    [
        (["diff"], "diff needs the ID of a task"),
        (["collect", "a", "b"], "collect takes one ID"),
        (["diff", "a", "--branch"], "--branch works only with collect"),
        (["list", "--yes"], "--yes works only with prune and discard"),
        (["prune", "--yes"], "--yes works only with --finished"),
    ],
)
def test_wrong_usage_is_explained(
    state: Path, words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tasks", *words]) == 2
    assert why in capsys.readouterr().err


def test_an_unknown_task_has_no_changes(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for action in ("diff", "collect", "discard"):
        assert main(["tasks", action, "ptk_none"]) == 1
        assert "there is no task 'ptk_none'" in capsys.readouterr().err
    assert not state.exists()
