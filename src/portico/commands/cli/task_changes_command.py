"""`portico tasks diff`, `collect` and `discard`: the changes that a task made in its worktree."""

import argparse
import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING

import msgspec

from portico.agents.delegation.stored_delegation import StoredDelegation
from portico.agents.delegation.worktree_folder import WORKTREES
from portico.agents.worktrees.worktree import Worktree
from portico.agents.worktrees.worktree_record import WorktreeError
from portico.agents.worktrees.worktrees import Worktrees
from portico.commands.console.form import is_confirmed
from portico.commands.console.render import Screen
from portico.commands.console.task_views import every_task, find_task
from portico.core.config.paths import state_folder
from portico.core.model.errors import PorticoError
from portico.core.model.wording import counted
from portico.library.tasks.store.record import ID_PREFIX

if TYPE_CHECKING:
    from portico.library.tasks.store.store import TaskStore

_STYLES = {"+": "green", "-": "red", "@": "cyan", "d": "bold"}
"""By the first character of a line of a patch."""
_MAX_SUBJECT = 60


async def diff(store: "TaskStore", options: argparse.Namespace) -> int:
    """Print the changes of a task as a patch."""
    _, worktree = await _found(store, options)
    out = Screen(sys.stdout)
    with TemporaryFile() as patch:
        is_binary = not out.is_terminal
        await asyncio.to_thread(worktree.write_patch, patch, is_binary=is_binary)
        patch.seek(0)
        if options.json:
            state, record = await asyncio.to_thread(worktree.state), worktree.record
            place = {"folder": record.top, "worktree": record.path, "branch": record.branch}
            text = patch.read().decode(errors="backslashreplace")
            out.data({**place, "base": record.base, "files_changed": state.files, "patch": text})
        elif not os.fstat(patch.fileno()).st_size:
            Screen(sys.stderr).print("no files have changed")
        else:
            _print(patch, out)
    return 0


def _print(patch: IO[bytes], out: Screen) -> None:
    """Print a patch: in colour on a terminal, and byte by byte elsewhere."""
    if out.is_terminal:
        for line in patch:
            text = line.decode(errors="replace").removesuffix("\n")
            out.print(text, _STYLES.get(text[:1], ""))
        return
    out.stream.flush()
    shutil.copyfileobj(patch, out.stream.buffer)
    out.stream.buffer.flush()


async def collect(store: "TaskStore", options: argparse.Namespace) -> int:
    """Apply the changes of a task to the user's files, or leave them as a branch."""
    from portico.agents.worktrees.collect_changes import apply_to_user, leave_branch

    async with _locked(store, options) as (task, worktree):
        record = worktree.record
        state = await asyncio.to_thread(worktree.state)
        count = counted(len(state.files), "file")
        try:
            if options.branch:
                message = await _message(store, task)
                commit = await asyncio.to_thread(leave_branch, worktree, message)
                told = f"branch {record.branch} has {count} changed, as commit {commit[:12]}"
            else:
                await asyncio.to_thread(apply_to_user, worktree)
                told = f"applied {count} to {record.top}"
        except WorktreeError as error:
            raise PorticoError(f"cannot collect {task}: {error}") from None
        await _ended(store, worktree, keeps_branch=options.branch)
    if options.json:
        branch = record.branch if options.branch else None
        where = {"folder": record.top, "branch": branch}
        Screen(sys.stdout).data({"collected": state.files, **where})
        return 0
    ignored = "; files that git ignores were not collected" if state.has_ignored else ""
    Screen(sys.stdout).print(f"{told}{ignored}")
    return 0


async def discard(store: "TaskStore", options: argparse.Namespace) -> int:
    """Remove the worktree of a task with its changes; 1 if the user declined."""
    async with _locked(store, options) as (task, worktree):
        what = await asyncio.to_thread(_content, worktree)
        unasked = f"{what} of {task} would be removed for good: confirm it with --yes"
        question = f"Remove {what} of {task} for good?"
        if not options.yes and not await is_confirmed(question, unasked):
            Screen(sys.stderr).print("portico: nothing was removed")
            return 1
        await _ended(store, worktree, keeps_branch=False)
    if options.json:
        Screen(sys.stdout).data({"discarded": task, "worktree": worktree.record.path})
    else:
        Screen(sys.stdout).print(f"removed {what} of {task}")
    return 0


async def uncollected(store: "TaskStore") -> list[str]:
    """Remove empty worktrees that were left behind; return the tasks of all others."""
    known = [task async for task in every_task(store)]
    kept = await asyncio.to_thread(_worktrees().sweep, [task.id for task in known])
    has_work = {task for record in kept for task in record.tasks}
    for task in known:
        if task.is_finished and task.is_held and task.id not in has_work:
            await _freed(store, task.id)
    return [record.tasks[-1] for record in kept]


async def _freed(store: "TaskStore", task: str) -> None:
    """Let a task expire whose worktree does not exist any more."""
    if await asyncio.to_thread(_worktrees().find, task) is None:
        await store.release_hold(task)


async def _found(store: "TaskStore", options: argparse.Namespace) -> tuple[str, Worktree]:
    """Return a task and its worktree; also one whose task does not exist any more."""
    given = options.words[0]
    starts = (given, f"{ID_PREFIX}{given}")
    everything = await asyncio.to_thread(lambda: [*_worktrees().all()])
    found = [
        (task, worktree)
        for worktree in everything
        for task in worktree.record.tasks
        if given and task.startswith(starts)
    ]
    if len(found) == 1:
        return found[0]
    known = await find_task(store, given)
    task = known.id
    for id, worktree in found:
        if id == task:
            return id, worktree
    if known.is_finished and known.is_held:
        await _freed(store, task)
    raise PorticoError(
        f"{task} has no changes in a worktree: it had none, or they were collected or discarded"
    )


@asynccontextmanager
async def _locked(
    store: "TaskStore", options: argparse.Namespace
) -> AsyncIterator[tuple[str, Worktree]]:
    """A task and its worktree, in which no agent works meanwhile."""
    task, worktree = await _found(store, options)
    try:
        lock = await asyncio.to_thread(_worktrees().lock, worktree.record.id)
    except WorktreeError as error:
        raise PorticoError(f"cannot {options.action} {task}: {error}") from None
    try:
        yield task, worktree
    finally:
        lock.release()


async def _ended(store: "TaskStore", worktree: Worktree, *, keeps_branch: bool) -> None:
    """Remove a worktree whose changes are needed no longer, and let its tasks expire."""
    for task in worktree.record.tasks:
        await store.release_hold(task)
    await asyncio.to_thread(worktree.remove, keeps_branch=keeps_branch)


def _content(worktree: Worktree) -> str:
    """Describe what a worktree has, for a person who may lose it."""
    path = worktree.record.path
    try:
        state = worktree.state()
    except WorktreeError:
        return f"the damaged worktree {path}"
    inner = f" and the repositories {', '.join(state.repositories)}" if state.repositories else ""
    return f"the changes to {counted(len(state.files), 'file')}{inner} in the worktree {path}"


async def _message(store: "TaskStore", task: str) -> str:
    """Return the message of a commit: the prompt of its task."""
    try:
        raw = await store.input(await find_task(store, task))
        prompt = msgspec.json.decode(raw or b"", type=StoredDelegation).prompt
    except (PorticoError, msgspec.DecodeError):
        prompt = ""
    subject = " ".join(prompt.split())[:_MAX_SUBJECT]
    return f"{subject or 'Work of an agent'}\n\nPortico task {task}\n"


def _worktrees() -> Worktrees:
    return Worktrees(os.path.join(state_folder(), WORKTREES))
