"""No file request reaches what git runs: folders of git are refused, whatever they are called."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from portico.agents.turns.confined_files import ConfinedFiles
from portico.core.model.errors import McpError
from tests.agents.turns.test_callbacks import ALL, answered


def git(*args: str, cwd: Path) -> None:
    who = ("-c", "user.name=n", "-c", "user.email=e@x", "-c", "protocol.file.allow=always")
    subprocess.run(["git", *who, *args], cwd=cwd, check=True, capture_output=True)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every kind of repository in it."""
    tree = tmp_path_factory.mktemp("tree")
    git("init", "-q", "plain", cwd=tree)
    git("commit", "-q", "--allow-empty", "-m", "first", cwd=tree / "plain")
    git("worktree", "add", "-q", "../linked", cwd=tree / "plain")
    git("init", "-q", "outer", cwd=tree)
    git("submodule", "add", "-q", "../plain", "sub", cwd=tree / "outer")
    git("init", "-q", "--separate-git-dir", "apart", "elsewhere", cwd=tree)
    git("init", "-q", "--bare", "bare", cwd=tree)
    git("worktree", "add", "-q", "-b", "one", "../of-bare", "HEAD", cwd=cloned(tree))
    (tree / "alias").symlink_to("plain/.git")
    (tree / "hooks").symlink_to("plain/.git/hooks")
    (tree / "config").symlink_to("plain/.git/config")
    (tree / "nested").mkdir()
    (tree / "nested" / ".git").symlink_to("../bare")
    return tree


def cloned(tree: Path) -> Path:
    git("clone", "-q", "--bare", "plain", "mirror", cwd=tree)
    return tree / "mirror"


REACHED = [
    "plain/.git/hooks/pre-commit",
    "plain/.git/config",
    "plain/.git",
    "plain/.GIT/config",
    "plain/.Git/hooks/x",
    "plain/.g\u200cit/config",
    "plain/git~1/config",
    "plain/.git. /config",
    "plain/.git::$INDEX_ALLOCATION/config",
    "plain/sub/../.git/config",
    "plain/.git/worktrees/linked/commondir",
    "linked/.git",
    "outer/sub/.git",
    "outer/.git/modules/sub/config",
    "elsewhere/.git",
    "apart/config",
    "apart/hooks/pre-commit",
    "bare/hooks/post-update",
    "bare/new/folder/file",
    "mirror/worktrees/of-bare/commondir",
    "alias/config",
    "hooks/pre-commit",
    "config",
    "nested/.git/config",
    "new/.git",
    "new/.git/config",
    "new/.git/modules/x/hooks/pre-commit",
]


@pytest.mark.parametrize("name", REACHED)
def test_folders_of_git_are_refused(tree: Path, name: str) -> None:
    files, path = ConfinedFiles(str(tree)), f"{tree}/{name}"
    before = all_files(tree)
    with pytest.raises(McpError, match=r"git|outside"):
        files.write(files.resolve(path), "#!/bin/sh\nid\n")
    with pytest.raises(McpError, match=r"git|outside"):
        files.read(files.resolve(path))
    assert all_files(tree) == before


@pytest.mark.parametrize("name", ["plain/.git/hooks", "bare/hooks", "apart", "bare"])
def test_a_task_in_a_folder_of_git_gets_no_files(tree: Path, name: str) -> None:
    files = ConfinedFiles(str(tree / name))
    with pytest.raises(McpError, match="git"):
        files.write(files.resolve(f"{tree}/{name}/pre-commit"), "#!/bin/sh\nid\n")
    assert not (tree / name / "pre-commit").exists()


PLANTED = [
    ["HEAD", "objects/info/x", "refs/heads/main"],
    ["refs/heads/main", "HEAD", "objects/x"],
    ["objects/x/y", "refs/x", "HEAD"],
    ["HEAD", "commondir"],
    ["commondir", "HEAD"],
    ["HEAD", "config", "objects/HEAD", "objects/objects/x", "objects/refs/x"],
]


@pytest.mark.parametrize("names", PLANTED)
@pytest.mark.parametrize("folder", ["", "deep/down/"])
def test_no_folder_becomes_one_of_git(tmp_path: Path, names: list[str], folder: str) -> None:
    files = ConfinedFiles(str(tmp_path))
    *first, last = (f"{tmp_path}/{folder}{name}" for name in names)
    for path in first:
        files.write(files.resolve(path), "ref: refs/heads/main")
    with pytest.raises(McpError, match="git"):
        files.write(files.resolve(last), "ref: refs/heads/main")
    assert not os.path.lexists(last)


@pytest.mark.parametrize(
    "name", [".gitignore", ".github/workflows/x.yml", "git/config", ".gitmodules", "a.git/x"]
)
def test_other_files_with_git_in_their_name_are_written(tmp_path: Path, name: str) -> None:
    files = ConfinedFiles(str(tmp_path))
    path = files.resolve(f"{tmp_path}/{name}")
    files.write(path, "text")
    assert files.read(path) == "text"


async def test_an_agent_is_told_why_its_hook_is_refused(tree: Path) -> None:
    path = str(tree / "plain" / ".git" / "hooks" / "pre-commit")
    for method in ("fs/write_text_file", "fs/read_text_file"):
        params: dict[str, Any] = {"path": path, "content": "#!/bin/sh"}
        error = await answered(tree, method, params, callbacks=ALL)
        assert error["code"] == -32602
        assert error["message"] == f"{path!r} is in a folder of git, which runs what is in it"


def all_files(tree: Path) -> list[tuple[str, int]]:
    return sorted((str(path), path.lstat().st_mtime_ns) for path in tree.rglob("*"))
