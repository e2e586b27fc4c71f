"""The folders of tasks whose agents work in git worktrees of their own."""

import asyncio
import os
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from portico.agents.delegation.stored_delegation import (
    FolderChanges,
    StoredDelegation,
    note_of,
    note_text,
)
from portico.agents.worktrees.check_out import subfolder, uncommitted
from portico.agents.worktrees.worktree import Worktree, WorktreeState
from portico.agents.worktrees.worktree_record import WorktreeError
from portico.agents.worktrees.worktrees import WorktreeLock, Worktrees
from portico.core.config.agents_schema import AgentEntry
from portico.core.model.wording import counted
from portico.core.state.store_error import StoreError
from portico.library.tasks.worker.work import Work

WORKTREES = "worktrees"
"""The folder of all worktrees, in the state folder."""
MAX_FILES = 1000
"""Changed files that a result lists."""
_LOCK_S = 10.0
"""How long a task waits for an earlier one to leave its worktree."""


class _Opened(Struct, frozen=True):
    """A worktree that a task may use."""

    worktree: Worktree
    lock: WorktreeLock
    path: str
    is_new: bool
    uncommitted: int
    """Changes in the user's own folder that are not in it."""


class WorktreeFolders:
    """Gives a task a worktree if its agent is configured so, or if an earlier task had one."""

    def __init__(self, state_folder: str) -> None:
        self._worktrees = Worktrees(os.path.join(state_folder, WORKTREES))

    async def prepare(
        self, work: Work, entry: AgentEntry, stored: StoredDelegation
    ) -> "WorktreeFolder | None":
        """Return the folder of a task; None if it works in the user's own. Raises WorktreeError."""
        note = note_of(work.task.note, entry.id)
        earlier = stored.worktree or note.worktree
        if not entry.worktree and not earlier:
            return None
        earlier, exists = await asyncio.to_thread(self._earlier, earlier, stored.cwd)
        if not entry.worktree and not exists:
            return None
        id = earlier or work.id
        # Noted before it exists: whatever happens, it is found again and not removed by age.
        await work.annotate(note_text(replace(note, worktree=id)))
        await work.hold()
        try:
            opened = await self._opened(id, work.id, stored.cwd)
        except WorktreeError:
            if await asyncio.to_thread(self._worktrees.get, id) is None:
                await work.hold(is_held=False)
            raise
        try:
            for line in _events(opened):
                await work.record(line)
        except BaseException:
            opened.lock.release()
            raise
        return WorktreeFolder(work, opened.worktree, opened.lock, opened.path)

    def _earlier(self, id: str, cwd: str) -> tuple[str, bool]:
        """Return the id of an earlier task's worktree, unless that is of another repository, and
        whether it exists."""
        known = self._worktrees.get(id) if id else None
        if known is None:
            return id, False  # one without changes was removed; sessions of agents know its path
        top = known.record.top
        return (id, True) if os.path.commonpath((top, cwd)) == top else ("", False)

    async def _opened(self, id: str, task: str, cwd: str) -> _Opened:
        opening = asyncio.ensure_future(asyncio.to_thread(self._open, id, task, cwd))
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:  # its thread continues, and would keep the lock
            opening.add_done_callback(_unlock)
            raise

    def _open(self, id: str, task: str, cwd: str) -> _Opened:
        lock = self._worktrees.lock(id, _LOCK_S)
        try:
            worktree, is_new = self._worktrees.checked_out(id, task, cwd)
            path = self._folder(worktree, cwd, is_new)
            return _Opened(worktree, lock, path, is_new, uncommitted(worktree) if is_new else 0)
        except BaseException:
            self._worktrees.forget(id)
            lock.release()
            raise

    def _folder(self, worktree: Worktree, cwd: str, is_new: bool) -> str:
        try:
            return subfolder(worktree, cwd)
        except WorktreeError:
            if is_new:
                worktree.remove()
            raise


class WorktreeFolder:
    """The folder of one task in its worktree, while its agent works there."""

    def __init__(self, work: Work, worktree: Worktree, lock: WorktreeLock, path: str) -> None:
        self.path = path
        self.id = worktree.record.id
        self._work = work
        self._worktree = worktree
        self._lock = lock
        self._state: WorktreeState | None = None

    async def changes(self) -> FolderChanges | None:
        """Return the files that differ from the commit with which the work began."""
        with suppress(WorktreeError):  # `leave` reports it
            self._state = await asyncio.to_thread(self._worktree.state)
        return None if self._state is None else self._described(self._state)

    def _described(self, state: WorktreeState) -> FolderChanges:
        if not state.is_work:
            return FolderChanges((), "")
        count = len(state.files)
        listed = f", of which {MAX_FILES} are listed" if count > MAX_FILES else ""
        about = (
            f"{counted(count, 'file')} changed{listed}, only in a worktree so far (branch "
            f"{self._worktree.record.branch}); the user applies them with "
            f"`portico tasks collect {self._work.id}`"
        )
        return FolderChanges(state.files[:MAX_FILES], about)

    async def leave(self) -> None:
        """Remove the worktree if it has no changes; else it stays until they are collected."""
        event, is_work = await asyncio.to_thread(self._left)
        with suppress(StoreError):  # then the task is kept for longer than needed
            if not is_work:
                await self._work.hold(is_held=False)
            await self._work.record(event)

    def _left(self) -> tuple[str, bool]:
        """Return the event of the end, and whether there is work to collect."""
        try:
            state = self._state or self._worktree.state()
            if state.is_work:
                return self._described(state).about, True
            if state.has_ignored:
                path = self._worktree.record.path
                return f"no files changed but those that git ignores, in {path}", False
            self._worktree.remove()
            return "no files changed; the worktree was removed", False
        except WorktreeError as error:
            return f"the worktree was kept: {error}", True
        finally:
            self._lock.release()


def _unlock(opening: "asyncio.Future[_Opened]") -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().lock.release()


def _events(opened: _Opened) -> list[str]:
    record = opened.worktree.record
    if not opened.is_new:
        return [f"continues in the worktree of {record.id}, on branch {record.branch}"]
    lines = [
        f"works in a git worktree of {record.top}, on branch {record.branch}, "
        f"from commit {record.base[:12]}"
    ]
    if opened.uncommitted:
        changes = counted(opened.uncommitted, "uncommitted change")
        lines.append(f"{changes} in {record.top} {_are(opened.uncommitted)} not in it")
    return lines


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
