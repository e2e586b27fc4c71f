"""All worktrees of tasks, in the state folder: found again, made, and used by one at a time.

Everything here waits; call it in a thread.
"""

import fcntl
import os
import shutil
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Self

import msgspec
from msgspec.structs import replace

from portico.agents.worktrees.check_out import check_out, is_complete
from portico.agents.worktrees.git_command import GitError
from portico.agents.worktrees.refs import branch_tip, head
from portico.agents.worktrees.repository import Repository, find_repository
from portico.agents.worktrees.worktree import Worktree
from portico.agents.worktrees.worktree_record import WorktreeError, WorktreeRecord
from portico.core.state import files
from portico.library.tasks.store.record import ID_PREFIX

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
    """The worktrees in one folder, each in a folder named after its first task.

    Agents write there. Records, locks and our own git folders are in another one beside it.
    """

    def __init__(self, folder: str) -> None:
        self._folder = os.path.realpath(folder)
        self._private = f"{self._folder}-private"

    def lock(self, id: str, within_s: float = 0.0) -> WorktreeLock:
        """Take the right to use a worktree; raises WorktreeError if it is in use."""
        try:
            files.make_private(self._folder)
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
            for id in sorted(os.listdir(self._private)):
                if (found := self.get(id)) is not None and found.record.git_dir:
                    yield found

    def get(self, id: str) -> Worktree | None:
        """Return the worktree that was made for a task, unless its folder was removed by hand."""
        try:
            raw, _ = files.read(os.path.join(self._place(id), _RECORD), _MAX_RECORD)
            record = msgspec.json.decode(raw, type=WorktreeRecord)
        except (OSError, msgspec.DecodeError):
            return None
        is_gone = record.git_dir and not os.path.lexists(os.path.join(self._folder, id))
        return None if is_gone else self._worktree(record)

    def find(self, task: str) -> Worktree | None:
        """Return the worktree in which a task worked."""
        return next((found for found in self.all() if task in found.record.tasks), None)

    def checked_out(self, id: str, task: str, cwd: str) -> tuple[Worktree, bool]:
        """Return the worktree of this id, for a task in a folder of the user, and whether it is a
        new one; raises WorktreeError. The lock must be held."""
        known = self.get(id)
        if known is None:
            record, is_new = self._planned(id, cwd), True
        else:
            record, is_new = known.record, not known.record.git_dir
        if task not in record.tasks:
            record = replace(record, tasks=(*record.tasks, task))
        # Stored before anything exists, so that all of it is found again after a crash.
        self._save(record)
        worktree = self._worktree(record)
        if not is_complete(worktree):
            try:
                record = check_out(worktree, self._folder, self._place(id))
            except GitError as error:
                raise WorktreeError(f"cannot make a worktree for {cwd}: {error}") from error
            except OSError as error:
                why = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
                raise WorktreeError(f"cannot make a worktree for {cwd}: {why}") from error
            self._save(record)
        return self._worktree(record), is_new

    def forget(self, id: str) -> None:
        """Remove the folder of a worktree that was never checked out."""
        known = self.get(id)
        if known is None:
            with suppress(OSError):
                shutil.rmtree(self._place(id))
        elif not known.record.git_dir:
            known.remove()

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
                    worktree.remove()
            except WorktreeError:
                kept.append(record)
            finally:
                lock.release()
        self._sweep_private()
        return kept

    def _sweep_private(self) -> None:
        """Remove the private folders of worktrees that were removed by hand."""
        with suppress(FileNotFoundError):
            for id in os.listdir(self._private):
                if self.get(id) is None:
                    with suppress(WorktreeError):  # a task is about to use it
                        lock = self.lock(id)
                        try:
                            self.forget(id)
                        finally:
                            lock.release()

    def _planned(self, id: str, cwd: str) -> WorktreeRecord:
        repository = find_repository(cwd)
        if repository is None:
            raise WorktreeError(
                f"{cwd} is not inside a git repository, and the agent works in worktrees only: "
                "use `git init` and commit, or set worktree = false for the agent"
            )
        top, base = repository.top, head(repository, repository.own)
        if not base:
            raise WorktreeError(
                f"{top} has no commits yet, so that a worktree has nothing to begin with; make one"
            )
        path = os.path.join(self._folder, id, os.path.basename(top) or "work")
        branch = _free_branch(repository, id)
        return WorktreeRecord(
            id=id, tasks=(), top=top, common=repository.common, path=path, branch=branch, base=base
        )

    def _save(self, record: WorktreeRecord) -> None:
        place = self._place(record.id)
        try:
            files.make_private(self._folder)
            files.make_private(place)
            files.replace(os.path.join(place, _RECORD), msgspec.json.encode(record))
        except OSError as error:
            raise WorktreeError(f"cannot write to {place}: {error.strerror}") from error

    def _worktree(self, record: WorktreeRecord) -> Worktree:
        return Worktree(self._folder, self._place(record.id), record)

    def _place(self, id: str) -> str:
        """Return the private folder of a worktree."""
        return os.path.join(self._private, id)


def _free_branch(repository: Repository, id: str) -> str:
    # Git has no branch below another branch.
    prefix = "portico-" if branch_tip(repository, "portico") else "portico/"
    name = id.removeprefix(ID_PREFIX)
    short = f"{prefix}{name[:_SHORT]}"
    return f"{prefix}{name}" if branch_tip(repository, short) else short


def _is_at(path: str, fd: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except FileNotFoundError:
        return False
