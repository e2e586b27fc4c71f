"""Agents that work in git worktrees: real repositories, and real processes that write files."""

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from portico.agents.delegation.worktree_folder import MAX_FILES
from portico.agents.worktrees.worktree_record import WorktreeError
from portico.core.config.agents_schema import AgentEntry, AgentPool
from portico.core.model.context import LOCAL
from portico.library.tasks.store.record import CANCELLED, COMPLETED, INTERRUPTED
from tests.agents.turns.rig import WAIT_S
from tests.agents.worktrees.repositories import (
    delegations,
    git,
    names,
    repository,
    worker_entry,
)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return repository(tmp_path / "project", a__txt="one\n", b__txt="two\n", c__txt="three\n")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A pipe that a writer cannot open before its reader."""
    os.mkfifo(tmp_path / "gate")
    return tmp_path / "gate"


def writing(command: str, id: str = "writer", *, worktree: bool = True) -> AgentEntry:
    return worker_entry(id, {"shell": command}, {"say": "done"}, worktree=worktree)


def waiting(*steps: object, id: str = "waiter") -> AgentEntry:
    """An agent that does something, and then works until it is cancelled."""
    return worker_entry(id, *steps, {"wait_for_cancel": True})


async def passed(gate: Path) -> None:
    """Wait until an agent has written to a pipe."""
    async with asyncio.timeout(WAIT_S):
        await asyncio.to_thread(gate.read_bytes)


async def test_the_changes_of_a_task_stay_in_its_worktree(repo: Path, state: Path) -> None:
    command = "echo more >> a.txt; mv b.txt moved.txt; rm c.txt; mkdir d; echo new > d/e.txt"
    async with delegations(state, writing(command)) as work:
        task, result = await work.run("writer", repo)
        assert not task.is_error, result.result
        assert result.files_changed == ("a.txt", "b.txt", "c.txt", "d/e.txt", "moved.txt")
        assert f"`portico tasks collect {task.id}`" in result.changes
        assert names(repo) == {"a.txt", "b.txt", "c.txt"}
        assert git(repo, "status", "--porcelain") == ""
        record = work.worktree(task).record
        assert result.cwd == record.path == str(state / "worktrees" / task.id / "project")
        assert git(repo, "branch", "--list", "portico/*").split()[-1] == record.branch
        assert record.branch == f"portico/{task.id[4:12]}"
        assert task.is_held


async def test_an_agent_with_warm_processes_is_started_in_each_worktree(
    repo: Path, state: Path
) -> None:
    warm = replace(writing("touch new.txt"), pool=AgentPool(max=2))
    async with delegations(state, warm, replace(warm, id="plain", worktree=False)) as work:
        await work.run("plain", repo)
        (repo / "new.txt").unlink()
        for _ in range(2):
            _, result = await work.run("writer", repo)
            assert result.files_changed == ("new.txt",)
            assert "is_warm" not in result.timings
        assert not (repo / "new.txt").exists()


async def test_commits_of_the_agent_are_changes_too(repo: Path, state: Path) -> None:
    commit = "git -c user.name=A -c user.email=a@b commit -qam agent"
    command = f"echo more >> a.txt; {commit}; rm b.txt"
    async with delegations(state, writing(command)) as work:
        task, result = await work.run("writer", repo)
        assert result.files_changed == ("a.txt", "b.txt")
        assert work.worktree(task).state().has_commits
        assert git(repo, "log", "--format=%s") == "first"


async def test_uncommitted_changes_of_the_user_are_not_taken_along(repo: Path, state: Path) -> None:
    (repo / "a.txt").write_text("mine\n")
    (repo / "new.txt").write_text("mine\n")
    async with delegations(state, writing("cat a.txt > seen.txt; ls > listed.txt")) as work:
        task, result = await work.run("writer", repo)
        path = Path(result.cwd)
        assert (path / "seen.txt").read_text() == "one\n"
        assert "new.txt" not in (path / "listed.txt").read_text()
        assert result.files_changed == ("listed.txt", "seen.txt")
        assert f"2 uncommitted changes in {repo} are not in it" in await work.events(task)
        assert (repo / "a.txt").read_text() == "mine\n"


@pytest.mark.parametrize("is_committed", [True, False])
async def test_an_agent_works_in_the_folder_of_its_task(
    repo: Path, state: Path, is_committed: bool
) -> None:
    inner = repo / "sub" / "folder"
    inner.mkdir(parents=True)
    if is_committed:
        (inner / "kept.txt").write_text("")
        git(repo, "add", "-A")
        git(repo, "commit", "-q", "-m", "more")
    async with delegations(state, writing("touch here.txt; touch ../up.txt")) as work:
        task, result = await work.run("writer", inner)
        assert result.cwd == str(Path(work.worktree(task).record.path) / "sub" / "folder")
        assert result.files_changed == ("sub/folder/here.txt", "sub/up.txt")


async def test_a_folder_that_is_a_link_in_the_commit_is_refused(repo: Path, state: Path) -> None:
    (repo / "out").symlink_to(state.parent)
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "link")
    (repo / "out").unlink()
    (repo / "out").mkdir()
    async with delegations(state, writing("touch x")) as work:
        task, result = await work.run("writer", repo / "out")
        assert task.is_error
        assert "out is a link in commit" in result.result
        assert not task.is_held
        assert os.listdir(state / "worktrees") == []
        assert not (state.parent / "x").exists()


async def test_a_worktree_without_changes_is_removed(repo: Path, state: Path) -> None:
    async with delegations(state, writing("cat a.txt")) as work:
        task, result = await work.run("writer", repo)
        assert (task.state, task.is_held, result.files_changed) == (COMPLETED, False, ())
        assert os.listdir(state / "worktrees") == []
        assert git(repo, "branch", "--list", "portico/*") == ""
        assert len(git(repo, "worktree", "list").splitlines()) == 1
        assert "no files changed; the worktree was removed" in await work.events(task)


async def test_ignored_files_are_kept_as_long_as_their_task(repo: Path, state: Path) -> None:
    (repo / ".gitignore").write_text("*.log\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "ignore")
    async with delegations(state, writing("echo hot > run.log")) as work:
        task, result = await work.run("writer", repo)
        assert (result.files_changed, task.is_held) == ((), False)
        assert (Path(result.cwd) / "run.log").read_text() == "hot\n"
        assert work.worktrees.sweep([task.id]) == []
        assert (Path(result.cwd) / "run.log").exists()
        assert work.worktrees.sweep([]) == []
        assert os.listdir(state / "worktrees") == []


async def test_a_repository_without_commits_is_refused(tmp_path: Path, state: Path) -> None:
    empty = repository(tmp_path / "empty")
    async with delegations(state, writing("touch x")) as work:
        task, result = await work.run("writer", empty)
        assert (task.state, task.is_error, task.is_held) == (COMPLETED, True, False)
        assert f"{empty} has no commits yet" in result.result
        assert os.listdir(state / "worktrees") == []


async def test_a_folder_outside_of_a_repository_is_refused(tmp_path: Path, state: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    async with delegations(state, writing("touch x")) as work:
        task, result = await work.run("writer", plain)
        assert task.is_error
        assert f"{plain} is not inside a git repository" in result.result
        assert "worktree = false" in result.result
        assert list(plain.iterdir()) == []


async def test_without_git_the_agent_is_not_started(
    repo: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(state))
    async with delegations(state, writing("touch x")) as work:
        task, result = await work.run("writer", repo)
        assert task.is_error
        assert "git was not found: install it, or add its folder to PATH" in result.result
        assert not task.is_held


async def test_a_detached_head_is_the_base(repo: Path, state: Path) -> None:
    first = git(repo, "rev-parse", "HEAD")
    (repo / "a.txt").write_text("second\n")
    git(repo, "commit", "-qam", "second")
    git(repo, "checkout", "-q", first)
    async with delegations(state, writing("cat a.txt > seen.txt")) as work:
        task, result = await work.run("writer", repo)
        assert work.worktree(task).record.base == first
        assert (Path(result.cwd) / "seen.txt").read_text() == "one\n"


async def test_a_branch_named_portico_is_not_in_the_way(repo: Path, state: Path) -> None:
    git(repo, "branch", "portico")
    async with delegations(state, writing("touch x")) as work:
        task, result = await work.run("writer", repo)
        assert result.files_changed == ("x",)
        assert work.worktree(task).record.branch == f"portico-{task.id[4:12]}"


async def test_hooks_and_variables_do_not_run_or_lead_astray(
    repo: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = repo / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {state.parent / 'hooked'}\n")
    hook.chmod(0o755)
    monkeypatch.setenv("GIT_DIR", str(state / "elsewhere"))
    async with delegations(state, writing("touch x")) as work:
        _, result = await work.run("writer", repo)
        assert result.files_changed == ("x",)
        assert not (state.parent / "hooked").exists()


async def test_submodules_are_left_alone_but_never_lost(
    repo: Path, tmp_path: Path, state: Path
) -> None:
    inner = repository(tmp_path / "inner", lib__txt="lib\n")
    git(repo, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "lib")
    git(repo, "commit", "-q", "-m", "submodule")
    opened = (
        "git -c protocol.file.allow=always submodule --quiet update --init; echo x >> lib/lib.txt"
    )
    async with delegations(state, writing("ls lib >&2"), writing(opened, "deep")) as work:
        task, result = await work.run("writer", repo)
        assert (result.files_changed, task.is_held) == ((), False)
        task, result = await work.run("deep", repo)
        assert (result.files_changed, task.is_held) == ((), True)
        assert work.worktree(task).state().repositories == ("lib",)


async def test_new_repositories_in_a_worktree_are_noticed(repo: Path, state: Path) -> None:
    command = "git init -q empty; touch empty/file; git init -q full; touch x; cd full; touch y"
    async with delegations(state, writing(command)) as work:
        task, result = await work.run("writer", repo)
        assert result.files_changed == ("x",)
        assert work.worktree(task).state().repositories == ("empty/", "full/")


async def test_two_tasks_at_once_have_a_worktree_each(repo: Path, state: Path) -> None:
    async with delegations(state, writing("echo $$ > a.txt")) as work:
        tasks = [await work.submit("writer", repo) for _ in range(4)]
        ended = await asyncio.gather(*map(work.ended, tasks))
        assert [result.files_changed for _, result in ended] == [("a.txt",)] * 4
        assert len({result.cwd for _, result in ended}) == 4
        assert len({(Path(result.cwd) / "a.txt").read_text() for _, result in ended}) == 4


async def test_a_task_that_follows_another_continues_in_its_worktree(
    repo: Path, state: Path
) -> None:
    agents = (writing("echo 1 > first"), writing("cat first > second", "next"))
    async with delegations(state, *agents) as work:
        first, before = await work.run("writer", repo)
        second, after = await work.run("next", repo, follows=first)
        assert after.cwd == before.cwd
        assert after.files_changed == ("first", "second")
        assert work.worktree(second).record.tasks == (first.id, second.id)
        assert f"continues in the worktree of {first.id}" in await work.events(second)
        third, _ = await work.run("next", repo, follows=second)
        assert work.worktree(third).record.id == first.id


async def test_a_follower_gets_the_same_path_if_the_worktree_was_removed(
    repo: Path, state: Path
) -> None:
    async with delegations(state, writing("cat a.txt"), writing("touch x", "next")) as work:
        first, before = await work.run("writer", repo)
        second, after = await work.run("next", repo, follows=first)
        assert after.cwd == before.cwd
        assert work.worktree(second).record.id == first.id


async def test_an_agent_without_worktrees_continues_in_the_one_that_it_follows(
    repo: Path, state: Path
) -> None:
    plain = writing("touch y", "plain", worktree=False)
    async with delegations(state, writing("touch x"), plain) as work:
        first, _ = await work.run("writer", repo)
        _, alone = await work.run("plain", repo)
        assert (alone.cwd, alone.files_changed) == (str(repo), None)
        _, after = await work.run("plain", repo, follows=first)
        assert after.files_changed == ("x", "y")


async def test_without_a_worktree_the_changes_are_those_that_the_agent_reports(
    repo: Path, state: Path
) -> None:
    call = {"sessionUpdate": "tool_call", "toolCallId": "1", "kind": "edit", "status": "completed"}
    where = [{"path": str(repo / "a.txt")}, {"path": "/elsewhere"}, {"path": "sub/b"}]
    steps = {"update": {**call, "title": "edit", "locations": where}}
    async with delegations(state, worker_entry("plain", steps, worktree=False)) as work:
        task, result = await work.run("plain", repo)
        assert result.files_changed == ("/elsewhere", "a.txt", "sub/b")
        assert result.changes.startswith("reported by the agent")
        assert not task.is_held


async def test_a_follower_in_another_repository_has_a_worktree_of_its_own(
    repo: Path, tmp_path: Path, state: Path
) -> None:
    other = repository(tmp_path / "other", o__txt="other\n")
    async with delegations(state, writing("touch x")) as work:
        first, _ = await work.run("writer", repo)
        second, result = await work.run("writer", other, follows=first)
        assert work.worktree(second).record.top == str(other)
        assert result.files_changed == ("x",)


async def test_a_cancelled_task_keeps_its_changes(repo: Path, state: Path, gate: Path) -> None:
    agent = waiting({"shell": f"echo half > a.txt; echo > {gate}"})
    async with delegations(state, agent) as work:
        task = await work.submit("waiter", repo)
        await passed(gate)
        await work.store.cancel(LOCAL, task.id)
        ended, _ = await work.ended(task)
        assert (ended.state, ended.is_held) == (CANCELLED, True)
        assert work.worktree(task).state().files == ("a.txt",)


async def test_a_task_that_is_cancelled_while_its_worktree_is_made_leaves_no_lock(
    repo: Path, state: Path, gate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    slow = tmp_path / "bin" / "git"
    slow.parent.mkdir()
    wait = f'case "$*" in *"read-tree --reset"*) echo > {gate}; cat {go};; esac'
    slow.write_text(f'#!/bin/sh\n{wait}\nexec {shutil.which("git")} "$@"\n')
    slow.chmod(0o755)
    async with delegations(state, writing("touch x")) as work:
        with monkeypatch.context() as patch:
            patch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
            task = await work.submit("writer", repo)
            await passed(gate)
            await work.store.cancel(LOCAL, task.id)
            ended, _ = await work.ended(task)
        assert ended.state is CANCELLED
        await asyncio.to_thread(go.write_bytes, b"")
        lock = await asyncio.to_thread(work.worktrees.lock, task.id, WAIT_S)
        lock.release()
        assert work.worktrees.sweep([task.id]) == []
        assert os.listdir(state / "worktrees") == []


async def test_an_interrupted_task_is_resumed_in_its_worktree(
    repo: Path, state: Path, gate: Path
) -> None:
    agent = waiting({"shell": f"echo half > a.txt; echo > {gate}"})
    async with delegations(state, agent) as work:
        task = await work.submit("waiter", repo)
        await passed(gate)
    async with delegations(state, writing("echo rest >> a.txt", "waiter")) as work:
        ended, _ = await work.ended(task)
        assert (ended.state, ended.is_held) == (INTERRUPTED, True)
        done, result = await work.resumed(task.id)
        assert (Path(result.cwd) / "a.txt").read_text() == "half\nrest\n"
        assert work.worktree(done).record.id == task.id


async def test_a_killed_gateway_leaves_the_worktree_and_it_is_found_again(
    repo: Path, state: Path, gate: Path
) -> None:
    words = (str(state), str(repo), str(gate))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.agents.delegation.killed_worker",
        *words,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        id = (await process.stdout.readline()).decode().strip()
        await passed(gate)
    finally:
        process.kill()
        await process.communicate()
    async with delegations(state, writing("echo rest >> a.txt", "waiter")) as work:
        lost = await work.store.get(LOCAL, id)
        assert lost is not None
        lost, _ = await work.ended(lost)
        assert (lost.state, lost.is_held) == (INTERRUPTED, True)
        assert work.worktree(lost).state().files == ("a.txt",)
        done, result = await work.resumed(id)
        assert result.files_changed == ("a.txt",), await work.events(done)
        assert (Path(result.cwd) / "a.txt").read_text() == "half\nrest\n"


async def test_a_worktree_is_used_by_one_task_at_a_time(
    repo: Path, state: Path, tmp_path: Path
) -> None:
    async with delegations(state, writing("touch x")) as work:
        task, _ = await work.run("writer", repo)
        lock = work.worktrees.lock(task.id)
        with pytest.raises(WorktreeError, match="a task works in the worktree of"):
            work.worktrees.lock(task.id)
        lock.release()
        work.worktrees.lock(task.id).release()


async def test_odd_names_and_binary_files_are_changes(repo: Path, state: Path) -> None:
    odd = ["*", "-n", "a\nb", 'q"uote', " space ", "ümlaut", ":(top)x"]
    (state.parent / "odd").mkdir()
    for name in (*odd, os.fsdecode(b"\xff\xfe")):
        (state.parent / "odd" / name).write_bytes(bytes(range(256)))
    async with delegations(state, writing(f"cp -R {state.parent}/odd odd")) as work:
        _, result = await work.run("writer", repo)
        assert result.files_changed is not None
        assert set(result.files_changed) == {f"odd/{name}" for name in odd} | {r"odd/\xff\xfe"}


async def test_a_result_lists_a_bounded_number_of_files(repo: Path, state: Path) -> None:
    command = f"for n in $(seq {MAX_FILES + 5}); do echo $n > f$n; done"
    async with delegations(state, writing(command)) as work:
        _, result = await work.run("writer", repo)
        assert len(result.files_changed or ()) == MAX_FILES
        assert f"{MAX_FILES + 5} files changed, of which {MAX_FILES} are listed" in result.changes


async def test_an_agent_that_damages_its_worktree_loses_no_result(repo: Path, state: Path) -> None:
    async with delegations(state, writing("rm .git; touch x"), writing("rm -r *", "all")) as work:
        task, result = await work.run("writer", repo)
        assert result.files_changed == ("x",)
        git_dir = work.worktree(task).record.git_dir
        shutil.rmtree(git_dir)
        again, result = await work.run("writer", repo, follows=task)
        assert again.is_error
        assert f"is damaged: {git_dir} is missing" in result.result
        assert (Path(work.worktree(task).record.path) / "x").exists()
        _, result = await work.run("all", repo)
        assert result.files_changed == ("a.txt", "b.txt", "c.txt")


async def test_a_worktree_that_is_half_made_is_made_again(repo: Path, state: Path) -> None:
    async with delegations(state, writing("touch x")) as work:
        record = work.worktrees.checked_out("ptk_halfmade", "ptk_halfmade", str(repo))[0].record
        file = state / "worktrees-private" / "ptk_halfmade" / "worktree.json"
        file.write_text(file.read_text().replace(record.git_dir, ""))
        (Path(record.path) / "a.txt").unlink()
        assert work.worktrees.find("ptk_halfmade") is None
        again, is_new = work.worktrees.checked_out("ptk_halfmade", "ptk_halfmade", str(repo))
        assert (again.record.git_dir, is_new) == (record.git_dir, True)
        assert not again.state().is_work


async def test_empty_worktrees_that_were_left_behind_are_swept(repo: Path, state: Path) -> None:
    async with delegations(state, writing("touch x")) as work:
        task, _ = await work.run("writer", repo)
        work.worktrees.checked_out("ptk_left", "ptk_left", str(repo))
        kept = work.worktrees.sweep(["ptk_left"])
        assert [record.id for record in kept] == [task.id]
        assert os.listdir(state / "worktrees") == [task.id]
