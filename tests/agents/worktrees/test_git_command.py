"""How git is run: bounded, without prompts, and with nothing of this process's environment."""

import errno
import os
from pathlib import Path

import pytest

from portico.agents.worktrees.git_command import GitError, GitFolder
from tests.wrap.standing import until


def test_a_command_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    hang = ("-c", f"alias.hang=!cat {pipe} & echo > {pipe}; cat {pipe}", "hang")
    with pytest.raises(GitError, match=r"did not end within 0\.5 s"):
        GitFolder(str(tmp_path)).run(*hang, timeout_s=0.5)
    until(lambda: not has_reader(pipe), "a child still reads")
    assert not has_reader(pipe)


def has_reader(pipe: Path) -> bool:
    try:
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    except OSError as error:
        return error.errno != errno.ENXIO
    return True


def test_git_does_not_prompt_and_sees_no_variables_of_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", "/elsewhere")
    monkeypatch.setenv("SECRET", "x")
    shown = GitFolder(str(tmp_path)).run("-c", "alias.env=!env", "env").decode().splitlines()
    names = {line.partition("=")[0] for line in shown}
    assert "GIT_TERMINAL_PROMPT=0" in shown
    assert not names & {"SECRET", "GIT_WORK_TREE"}
    assert "GIT_DIR=/elsewhere" not in shown
    with pytest.raises(GitError):
        GitFolder(str(tmp_path)).run("-c", "alias.tty=!cat /dev/tty", "tty")


def test_an_error_has_the_words_of_git(tmp_path: Path) -> None:
    with pytest.raises(GitError, match="git status failed: not a git repository"):
        GitFolder(str(tmp_path)).run("status")
    with pytest.raises(GitError, match=r"cannot run git in .*: No such file"):
        GitFolder(str(tmp_path / "missing")).run("status")


def test_a_missing_git_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GitError, match="git was not found: install it"):
        GitFolder(str(tmp_path)).run("status")
