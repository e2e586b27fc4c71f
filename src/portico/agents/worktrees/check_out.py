"""Checks a worktree out for an agent: complete and at its place, or not at all.

Everything here waits for git; call it in a thread.
"""

import os
import shutil
from contextlib import suppress

from msgspec.structs import replace

from portico.agents.worktrees.git_command import GitError
from portico.agents.worktrees.refs import branch_tip, write_branch
from portico.agents.worktrees.repository import find_repository
from portico.agents.worktrees.worktree import Worktree
from portico.agents.worktrees.worktree_record import WorktreeError, WorktreeRecord
from portico.core.state import files
from portico.core.state.held_folder import HeldFolder

_CHECKOUT_S = 600.0
"""How long the checkout of a repository may take."""


def check_out(worktree: Worktree, folder: str, private: str) -> WorktreeRecord:
    """Check a worktree out in a private folder, and move it to its place; raises WorktreeError,
    GitError or OSError."""
    record, repository, git = worktree.record, worktree.repository, worktree.git
    tip = branch_tip(repository, record.branch) or record.base
    made, index = os.path.join(private, "files"), os.path.join(private, "index")
    for left in (made, git.path):  # of a process that was killed on the way
        with suppress(FileNotFoundError):
            shutil.rmtree(left)
    with suppress(FileNotFoundError):
        os.unlink(index)
    files.make_private(git.path)
    git.refresh()
    os.mkdir(made)
    inside = git.at(made)
    inside.run("read-tree", "--reset", "-u", tip, index=index, timeout_s=_CHECKOUT_S)
    if tip == record.base:
        shutil.copy2(index, git.index)
    else:
        inside.run("read-tree", record.base, index=git.index)
    with open(index, "rb") as file:
        git_dir = repository.add_worktree(record.id, record.path, record.branch, file.read())
    with open(os.path.join(made, ".git"), "xb") as file:
        file.write(b"gitdir: " + os.fsencode(git_dir) + b"\n")
    write_branch(repository, record.branch, tip)
    inode = os.stat(made).st_ino
    with HeldFolder.at(folder) as all:
        all.remove(record.id)
        with all.inner(record.id, is_made=True) as own:
            os.rename(made, os.path.basename(record.path), dst_dir_fd=own.fd)
    return replace(record, git_dir=git_dir, inode=inode)


def is_complete(worktree: Worktree) -> bool:
    """True if a worktree can be used as it is; raises WorktreeError if that must not be repaired:
    its files may be work that git does not know of."""
    record = worktree.record
    if not record.git_dir or not os.path.lexists(record.path):
        return False
    if not os.path.isdir(record.git_dir):
        raise WorktreeError(
            f"the worktree {record.path} is damaged: {record.git_dir} is missing; "
            "copy the files that you need, then discard it"
        )
    with worktree.held():
        return True


def subfolder(worktree: Worktree, cwd: str) -> str:
    """Return the folder in a worktree that corresponds to one of the user; raises WorktreeError."""
    record = worktree.record
    inner = os.path.relpath(cwd, record.top)
    names = [] if inner == "." else inner.split("/")
    if ".." in names:
        raise WorktreeError(f"{cwd} is not inside {record.top} any more")
    try:
        with worktree.held() as held, held.below(*names, is_made=True):
            return os.path.join(record.path, *names)
    except NotADirectoryError:
        # A path that is a folder for the user may be a link in the commit.
        raise WorktreeError(
            f"{inner} is a link in commit {record.base[:12]}, or the agent has made it one: it is "
            "not a folder"
        ) from None
    except OSError as error:
        raise WorktreeError(f"cannot make {inner} in {record.path}: {error.strerror}") from error


def uncommitted(worktree: Worktree) -> int:
    """Return the number of changes in the user's folder that are not committed."""
    if worktree.is_nested:
        return 0
    index = f"{worktree.git.index}-of-user"
    words = ("status", "--porcelain", "--ignore-submodules=all")
    try:
        repository = find_repository(worktree.record.top)
        if repository is None:
            return 0
        with open(index, "wb") as file:
            file.write(repository.index())
        shown = worktree.git.at(repository.top).run(*words, index=index)
    except (GitError, WorktreeError, OSError):
        return 0
    finally:
        with suppress(OSError):
            os.unlink(index)
    return len(shown.splitlines())
