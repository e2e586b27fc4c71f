"""The changes of one task, whichever process makes them."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING

from portico.library.tasks.store.record import TaskRecord
from portico.library.tasks.store.task_watch import ChangeWatch

if TYPE_CHECKING:
    from portico.library.tasks.store.store import TaskStore

_POLL_S = 1.0
"""How often the changes of other processes are looked for."""


@asynccontextmanager
async def task_changes(
    store: "TaskStore", principal: str, id: str, new: TaskRecord | None = None
) -> AsyncGenerator[AsyncGenerator[TaskRecord, None], None]:
    """Return the states of a task: the current one, then each change, up to its end. A task that
    was stored just now is `new`, and not read again."""
    async with aclosing(_changes(store, principal, id, new)) as changes:
        yield changes


async def _changes(
    store: "TaskStore", principal: str, id: str, new: TaskRecord | None
) -> AsyncGenerator[TaskRecord, None]:
    with store.watch(id) as watch:
        seen = await store.get(principal, id) if new is None else new
        while seen is not None:
            yield seen
            if seen.is_finished:
                return
            seen = await _next(store, watch, seen)


async def _next(store: "TaskStore", watch: ChangeWatch, seen: TaskRecord) -> TaskRecord | None:
    while True:
        try:
            async with asyncio.timeout(_POLL_S):
                return await watch.next()
        except TimeoutError:
            found = await store.get(seen.principal, seen.id)
            if found is None or _shown(found) != _shown(seen):
                return found


def _shown(task: TaskRecord) -> tuple[object, ...]:
    """The part of a task that clients see: a renewed lease is not a change."""
    return task.state, task.updated_at, task.message, task.questions


async def finished_task(
    store: "TaskStore", principal: str, id: str, within_s: float, *, or_question: bool = True
) -> TaskRecord | None:
    """Wait for the end of a task, or a question; return it as it is then, or after this time."""
    latest: TaskRecord | None = None
    try:
        async with asyncio.timeout(within_s), task_changes(store, principal, id) as changes:
            async for latest in changes:
                if latest.is_finished or (or_question and latest.pending):
                    break
    except TimeoutError:
        latest = await store.get(principal, id)
    return latest
