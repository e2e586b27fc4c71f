"""All worktrees of tasks, in the state folder: found again, made, and used by one at a time.

Everything here waits; call it in a thread.
"""

import fcntl
import os
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Self

import msgspec
from msgspec.structs import replace

from portico.delegate.git_command import GitError, GitFolder
from portico.delegate.worktree import (
    CHECKOUT_S,
    Worktree,
    WorktreeError,
    WorktreeRecord,
    remove_tree,
)
from portico.state import files
from portico.tasks.record import ID_PREFIX

_RECORD, _LOCK = "worktree.json", "lock"
_MAX_RECORD = 1 << 20
_SHORT = 8
_POLL_S = 0.1
_OPEN = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)


class WorktreeLock:
    """The right to use one worktree, until it is released or this process ends."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @classmethod
    def acquire(cls, folder: str, within_s: float = 0.0) -> Self | None:
        """Take the lock; None if another holds it for all of this time."""
        until = time.monotonic() + within_s
        path = os.path.join(folder, _LOCK)
        while True:
            files.make_private(folder)
            fd = os.open(path, _OPEN, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_at(path, fd):  # the last holder may have removed the folder
                    return cls(fd)
            except BlockingIOError:
                if time.monotonic() >= until:
                    os.close(fd)
                    return None
                time.sleep(_POLL_S)
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)

    def release(self) -> None:
        """Let others use the worktree."""
        os.close(self._fd)


class Worktrees:
    """The worktrees in one folder, each in a folder named after its first task."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def lock(self, id: str, within_s: float = 0.0) -> WorktreeLock:
        """Take the right to use a worktree; raises WorktreeError if it is in use."""
        try:
            lock = WorktreeLock.acquire(self._place(id), within_s)
        except OSError as error:
            where = self._place(id)
            raise WorktreeError(f"cannot write to {where}: {error.strerror}") from error
        if lock is None:
            raise WorktreeError(f"a task works in the worktree of {id}; wait until it ends")
        return lock

    def all(self) -> Iterator[Worktree]:
        """Yield all worktrees that were ever checked out."""
        with suppress(FileNotFoundError):
            for id in sorted(os.listdir(self._folder)):
                if (found := self.get(id)) is not None and found.record.git_dir:
                    yield found

    def get(self, id: str) -> Worktree | None:
        """Return the worktree that was made for a task."""
        try:
            raw, _ = files.read(os.path.join(self._place(id), _RECORD), _MAX_RECORD)
            return Worktree(self._place(id), msgspec.json.decode(raw, type=WorktreeRecord))
        except (OSError, msgspec.DecodeError):
            return None

    def find(self, task: str) -> Worktree | None:
        """Return the worktree in which a task worked."""
        return next((found for found in self.all() if task in found.record.tasks), None)

    def checked_out(self, id: str, task: str, cwd: str) -> tuple[Worktree, bool]:
        """Return the worktree of this id, for a task in a folder of the user, and whether it is a
        new one; raises WorktreeError. The lock must be held."""
        try:
            known = self.get(id)
            if known is None:
                record, is_new = self._planned(id, cwd), True
            else:
                record, is_new = known.record, not known.record.git_dir
            if task not in record.tasks:
                record = replace(record, tasks=(*record.tasks, task))
            # Stored before anything exists, so that all of it is found again after a crash.
            self._save(record)
            if not _is_complete(record):
                record = replace(record, git_dir=self._check_out(record))
                self._save(record)
        except GitError as error:
            raise WorktreeError(f"cannot make a worktree for {cwd}: {error}") from error
        return Worktree(self._place(id), record), is_new

    def forget(self, id: str) -> None:
        """Remove the folder of a worktree that was never checked out."""
        known = self.get(id)
        if known is not None and known.record.git_dir:
            return
        remove_tree(self._place(id))
        if known is not None:
            with suppress(GitError):  # it may not have been created
                GitFolder(known.record.common).run("branch", "-D", known.record.branch)

    def sweep(self, tasks: Collection[str]) -> list[WorktreeRecord]:
        """Remove the worktrees without work that killed processes left behind, and files that git
        ignores once none of these tasks has worked there; return those with work, which stay."""
        kept: list[WorktreeRecord] = []
        for worktree in [*self.all()]:
            record = worktree.record
            try:
                lock = self.lock(record.id)
            except WorktreeError:
                continue
            try:
                state = worktree.state()
                if state.is_work:
                    kept.append(record)
                elif not state.has_ignored or not set(record.tasks) & set(tasks):
                    worktree.remove(is_forced=state.has_ignored)
            except WorktreeError:
                kept.append(record)
            finally:
                lock.release()
        return kept

    def _planned(self, id: str, cwd: str) -> WorktreeRecord:
        git = GitFolder(cwd)
        top = repository_of(cwd)
        try:
            base = git.line("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        except GitError:
            raise WorktreeError(
                f"{top} has no commits yet, so that a worktree has nothing to begin with; make one"
            ) from None
        common = os.path.realpath(os.path.join(cwd, git.line("rev-parse", "--git-common-dir")))
        path = os.path.join(self._place(id), os.path.basename(top) or "work")
        branch = _free_branch(git, id)
        return WorktreeRecord(
            id=id, tasks=(), top=top, common=common, path=path, branch=branch, base=base
        )

    def _check_out(self, record: WorktreeRecord) -> str:
        """Check a worktree out, and return its own folder in the repository."""
        if not record.git_dir:
            remove_tree(record.path)  # of a process that was killed on the way
        git = GitFolder(record.common)
        if _has_branch(git, record.branch):
            what: tuple[str, ...] = (record.path, record.branch)
        else:
            what = ("-b", record.branch, "--no-track", record.path, record.base)
        # A path that is registered, but missing, is used again.
        git.run("worktree", "add", "--force", "--quiet", *what, timeout_s=CHECKOUT_S)
        return GitFolder(record.path).line("rev-parse", "--absolute-git-dir")

    def _save(self, record: WorktreeRecord) -> None:
        place = self._place(record.id)
        try:
            files.make_private(place)
            files.replace(os.path.join(place, _RECORD), msgspec.json.encode(record))
        except OSError as error:
            raise WorktreeError(f"cannot write to {place}: {error.strerror}") from error

    def _place(self, id: str) -> str:
        return os.path.join(self._folder, id)


def repository_of(cwd: str) -> str:
    """Return the folder of the repository that contains a folder; raises WorktreeError."""
    git = GitFolder(cwd)
    try:
        return os.path.realpath(git.line("rev-parse", "--show-toplevel"))
    except GitError as error:
        if "not a git repository" in str(error):
            raise WorktreeError(
                f"{cwd} is not inside a git repository, and the agent works in worktrees only: "
                "use `git init` and commit, or set worktree = false for the agent"
            ) from None
        raise


def subfolder(worktree: Worktree, cwd: str) -> str:
    """Return the folder in a worktree that corresponds to one of the user; raises WorktreeError."""
    record = worktree.record
    inner = os.path.relpath(cwd, record.top)
    found = os.path.normpath(os.path.join(os.path.realpath(record.path), inner))
    # A path that is a folder for the user may be a link in the commit.
    if os.path.realpath(found) != found:
        raise WorktreeError(f"{inner} is a link in commit {record.base[:12]}, and not a folder")
    try:
        os.makedirs(found, exist_ok=True)
    except OSError as error:
        raise WorktreeError(
            f"{inner} is not a folder in commit {record.base[:12]}: {error.strerror}"
        ) from error
    return found


def _is_complete(record: WorktreeRecord) -> bool:
    """True if a worktree can be used as it is; raises WorktreeError if that must not be repaired:
    its files may be work that git does not know of."""
    if not record.git_dir or not os.path.isdir(record.path):
        return False
    if not os.path.isdir(record.git_dir):
        raise WorktreeError(
            f"the worktree {record.path} is damaged: {record.git_dir} is missing; "
            "copy the files that you need, then discard it"
        )
    return True


def _free_branch(git: GitFolder, id: str) -> str:
    # Git has no branch below another branch.
    prefix = "portico-" if _has_branch(git, "portico") else "portico/"
    name = id.removeprefix(ID_PREFIX)
    short = f"{prefix}{name[:_SHORT]}"
    return f"{prefix}{name}" if _has_branch(git, short) else short


def _has_branch(git: GitFolder, branch: str) -> bool:
    try:
        git.run("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}")
    except GitError:
        return False
    return True


def _is_at(path: str, fd: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except FileNotFoundError:
        return False
