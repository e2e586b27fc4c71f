"""Links, and other things in the place of what Portico expects, lead it nowhere."""

import json
import os
import sys
from pathlib import Path

import pytest

from portico.commands.cli.main import main
from tests.agents.delegation.boxed_agents import Box
from tests.agents.worktrees.repositories import git, names

CHANGE = "echo more >> a.txt; echo new > new.txt"
COMMON = "$(git rev-parse --git-common-dir)"


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Box:
    monkeypatch.setenv("PORTICO_HOME", str(tmp_path / "home"))
    return Box(tmp_path)


@pytest.mark.parametrize(
    "command",
    [
        'cd ..; mv project old; ln -s "$outside" project',
        'cd ../..; mv "$id" ../moved 2> /dev/null || mv "$id" moved; '
        'mkdir -p other; ln -s "$outside" other/project; ln -s other "$id"',
        'cd ..; mv project old; cp -R "$outside" project',
    ],
    ids=["worktree", "folder above", "copy"],
)
def test_another_folder_in_the_place_of_a_worktree_is_refused(
    box: Box, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    known = f'outside={box.outside}; id=$(basename "$(dirname "$PWD")")'
    task = box.work(f"{CHANGE}; {known}; {command}")
    box.untouched()
    for words in (("diff",), ("collect",), ("collect", "--branch")):
        assert main(["tasks", words[0], task.id, *words[1:]]) == 1
        told = capsys.readouterr()
        assert f"in the place of the worktree {box.worktree(task)}" in told.err
        assert "secret" not in told.out
        box.untouched()
    main(["tasks", "discard", task.id, "--yes"])
    main(["tasks", "prune"])
    box.untouched()
    assert "secret" not in names(box.repo)


def test_a_discarded_link_is_removed_and_not_followed(box: Box) -> None:
    task = box.work(f"cd ..; mv project old; ln -s {box.outside} project")
    assert main(["tasks", "discard", task.id, "--yes"]) == 0
    box.untouched()
    assert not os.path.lexists(box.worktree(task).parent)
    assert git(box.repo, "branch", "--list", "portico/*") == ""


def test_a_task_does_not_continue_in_a_link(box: Box) -> None:
    first = box.work(f"{CHANGE}; cd ..; mv project old; ln -s {box.outside} project")
    with pytest.raises(AssertionError, match="in the place of the worktree"):
        box.work("touch more", follows=first)
    box.untouched()


def test_links_inside_a_worktree_are_neither_followed_nor_opened_up(
    box: Box, capsys: pytest.CaptureFixture[str]
) -> None:
    deep = "mkdir -p d/e/f; touch d/e/f/x; chmod 0 d/e/f; chmod 500 d/e d; "
    links = f"ln -s {box.outside} out; ln -s {box.outside} d; ln -s {box.outside}/inner e/in; "
    task = box.work(f"mkdir e; {links}{deep.replace('d/', 'g/').replace(' d;', ' g;')}{CHANGE}")
    assert main(["tasks", "diff", task.id]) == 0
    shown = capsys.readouterr().out
    assert "kept" not in shown
    assert f"+{box.outside}" in shown  # the link itself, as git shows it
    box.untouched()
    assert main(["tasks", "discard", task.id, "--yes"]) == 0
    box.untouched()
    assert not box.worktree(task).exists()


def test_a_folder_of_the_commit_that_became_a_link_is_not_read(
    box: Box, capsys: pytest.CaptureFixture[str]
) -> None:
    (box.repo / "inner").mkdir()
    (box.repo / "inner" / "kept").write_text("ours\n")
    git(box.repo, "add", "-A")
    git(box.repo, "commit", "-qm", "inner")
    task = box.work(f"rm -r inner; ln -s {box.outside}/inner inner")
    assert main(["tasks", "diff", task.id]) == 0
    assert "+kept" not in capsys.readouterr().out
    assert main(["tasks", "collect", task.id]) == 0
    box.untouched()
    assert (box.repo / "inner").readlink() == box.outside / "inner"


def test_pipes_and_sockets_are_not_files(box: Box, capsys: pytest.CaptureFixture[str]) -> None:
    listen = "import socket; socket.socket(socket.AF_UNIX).bind('s')"
    added = "touch p s; git add p s; rm p s; mkfifo p"
    task = box.work(f'{added}; {sys.executable} -c "{listen}"; rm b.txt; mkfifo b.txt; {CHANGE}')
    assert main(["tasks", "diff", task.id, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files_changed"] == ["a.txt", "b.txt", "new.txt"]
    assert main(["tasks", "collect", task.id]) == 0
    assert names(box.repo) == {"a.txt", "c.txt", "new.txt"}


def test_deep_folders_are_removed(box: Box, capsys: pytest.CaptureFixture[str]) -> None:
    deeper = "import os; [(os.mkdir('d' * 99), os.chdir('d' * 99)) for _ in range(300)]"
    task = box.work(f'touch x; {sys.executable} -c "{deeper}"')
    assert main(["tasks", "collect", task.id]) == 1
    assert "a path has more than" in capsys.readouterr().err
    assert main(["tasks", "discard", task.id, "--yes"]) == 0
    assert not box.worktree(task).exists()


IN_REPOSITORY = {
    "index": 'ln -sf "$outside/secret" $(git rev-parse --git-dir)/index',
    "pipe as index": "i=$(git rev-parse --git-dir)/index; rm $i; mkfifo $i",
    "pipe as config": f"c={COMMON}/config; rm $c; mkfifo $c",
    "logs": (
        f"mkdir -p {COMMON}/logs/refs/heads/portico; "
        f"for b in $(ls {COMMON}/refs/heads/portico); do "
        f'ln -sf "$outside/secret" {COMMON}/logs/refs/heads/portico/$b; done'
    ),
    "branch": (
        f"for b in $(ls {COMMON}/refs/heads/portico); do "
        f'ln -sf "$outside/secret" {COMMON}/refs/heads/portico/$b; done'
    ),
    "names in the index": (
        "cd sub; rm -rf .git; "
        "printf '100644 %s 0\\t%s\\n' $(git hash-object -w ../a.txt) link/secret "
        '| git update-index --index-info; ln -s "$outside" ../link'
    ),
}


@pytest.mark.parametrize("command", IN_REPOSITORY.values(), ids=IN_REPOSITORY)
def test_links_in_a_repository_lead_nowhere(box: Box, command: str) -> None:
    head = git(box.repo, "rev-parse", "main")
    task = box.work(f"{CHANGE}; mkdir sub; outside={box.outside}; {command}")
    assert main(["tasks", "diff", task.id]) == 0
    assert main(["tasks", "collect", task.id, "--branch"]) == 0
    box.untouched()
    main(["tasks", "prune"])
    box.untouched()
    (box.repo / ".git" / "config").unlink()
    assert git(box.repo, "rev-parse", "main") == head
    assert git(box.repo, "show", f"portico/{task.id[4:12]}:new.txt") == "new"


@pytest.mark.parametrize("place", ["refs/heads/portico", "worktrees", "objects/pack", "logs"])
def test_linked_folders_in_a_repository_are_not_written_to(box: Box, place: str) -> None:
    task = box.work(
        f"{CHANGE}; cd {COMMON}; mkdir -p {place}; mv {place} old; ln -s {box.outside} {place}"
    )
    for words in (("diff",), ("collect", "--branch"), ("collect",), ("discard", "--yes")):
        main(["tasks", words[0], task.id, *words[1:]])
        box.untouched()


def test_a_branch_that_names_another_moves_no_other(box: Box) -> None:
    head = git(box.repo, "rev-parse", "main")
    own = f"{COMMON}/refs/heads/portico"
    link = f"echo 'ref: refs/heads/main' > {own}/$(ls {own})"
    task = box.work(f"{CHANGE}; {link}")
    assert main(["tasks", "collect", task.id, "--branch"]) == 0
    assert git(box.repo, "rev-parse", "main") == head


def test_objects_of_another_repository_are_not_borrowed(
    box: Box, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = tmp_path / "secret.git"
    git(tmp_path, "init", "-q", "--bare", str(secret))
    git(box.repo, "--git-dir", str(secret), "hash-object", "-w", str(box.outside / "secret"))
    blob = git(box.repo, "hash-object", str(box.outside / "secret"))
    task = box.work(
        f"{CHANGE}; echo {secret}/objects > {COMMON}/objects/info/alternates; "
        f"git update-index --add --cacheinfo 100644,{blob},stolen; touch stolen"
    )
    for words in (("diff",), ("collect",), ("collect", "--branch")):
        assert main(["tasks", words[0], task.id, *words[1:]]) == 1
        told = capsys.readouterr()
        assert "borrows the objects of another repository" in told.err
        assert "secret\n" not in told.out
    assert "stolen" not in names(box.repo)
    (box.repo / ".git" / "objects" / "info" / "alternates").unlink()
    assert main(["tasks", "collect", task.id]) == 0
    assert (box.repo / "stolen").read_text() == ""


def test_another_work_tree_in_the_settings_is_not_used(box: Box) -> None:
    first = box.work(f"{CHANGE}; git config core.worktree {box.outside}")
    assert main(["tasks", "collect", first.id]) == 0
    second = box.work("echo 2 > kept; mkdir -p inner; echo 3 > inner/kept")
    assert main(["tasks", "collect", second.id]) == 0
    box.untouched()
    assert (box.repo / "inner" / "kept").read_text() == "3\n"


def test_a_record_that_an_agent_writes_is_not_read(box: Box) -> None:
    command = (
        "cd ..; printf '%s' "
        f'\'{{"id":"ptk_x","tasks":["ptk_x"],"top":"{box.outside}","common":"{box.repo}/.git",'
        f'"path":"{box.outside}","branch":"x","base":"x","git_dir":"{box.repo}/.git"}}\' '
        "> worktree.json; mkdir ../ptk_x; cp worktree.json ../ptk_x"
    )
    task = box.work(f"{CHANGE}; {command}")
    assert main(["tasks", "discard", "ptk_x", "--yes"]) == 1
    assert main(["tasks", "collect", task.id]) == 0
    box.untouched()
    assert (box.repo / "new.txt").read_text() == "new\n"
