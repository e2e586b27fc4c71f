"""Waits for a delegated task on behalf of a call: progress, questions to a person, its result."""

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from portico.agents.delegation.delegate_definitions import AGENT_STATUS
from portico.core.model.content import ToolResult
from portico.core.model.context import Context
from portico.core.model.errors import ToolError
from portico.core.protocol.received_results import ReceivedToolResult
from portico.core.protocol.result_fields import with_notes
from portico.library.tasks.mcp.task_answers import question_notes, settled_task
from portico.library.tasks.mcp.task_call import DelegationControl
from portico.library.tasks.mcp.task_changes import task_changes
from portico.library.tasks.mcp.task_host import stored
from portico.library.tasks.mcp.task_wire import agent_of, reason_of, result_of
from portico.library.tasks.store.record import COMPLETED, TaskRecord

if TYPE_CHECKING:
    from portico.library.tasks.store.store import TaskStore

_BEGIN_S = 1.0
"""How long the answer to a task in the background waits for the choice of its agent."""


async def begun_task(store: "TaskStore", task: TaskRecord) -> TaskRecord:
    """Return a task once an agent has it, or after a moment: all agents may be busy."""
    latest = task
    with suppress(TimeoutError):
        async with asyncio.timeout(_BEGIN_S), task_changes(store, task.principal, task.id) as seen:
            async for latest in seen:
                if agent_of(latest):
                    break
    return latest


async def wait_for(
    store: "TaskStore", task: TaskRecord, context: Context, within_s: float, *, is_new: bool
) -> ToolResult:
    """Return the result of a task; after this time, or at a question to a model, its state.

    No time passes while the person in front of the client has a question. A task that `is_new` was
    stored just now.
    """
    shown, reports = "", 0

    async def report(latest: TaskRecord) -> None:
        nonlocal shown, reports
        if latest.message and latest.message != shown:
            shown, reports = latest.message, reports + 1
            await context.progress(reports, message=shown)

    latest = await settled_task(
        store, task, context, within_s, changed=report, or_question=False, is_new=is_new
    )
    return await _result(store, latest) if latest.is_finished else _state(latest)


async def own_result(
    own: DelegationControl, waiting: Coroutine[Any, Any, ToolResult]
) -> ToolResult:
    """Return the result of the task as soon as its agent has one, before it is stored: it passes
    the links of this call once. Otherwise return what waiting for the task returns."""
    settled = asyncio.ensure_future(waiting)
    waits: set[asyncio.Future[Any]] = {settled, own.result}
    own.is_waiting = True
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if not own.result.done():
            return settled.result()
        return typed(msgspec.json.decode(result_of(own.result.result())))
    finally:
        own.is_waiting = own.result.done()
        settled.cancel()
        await asyncio.wait({settled})  # a dialog is withdrawn before the call ends


async def _result(store: "TaskStore", task: TaskRecord) -> ToolResult:
    payload = await stored(store.result(task))
    if task.state is COMPLETED:
        return typed(msgspec.json.decode(result_of(payload)))
    why = reason_of(task, payload)
    raise ToolError(f"task {task.id} was {task.state}{why and ': '}{why}")


def _state(task: TaskRecord) -> ToolResult:
    """Return the state of a task that continues in the background."""
    agent = agent_of(task)
    whose = f" of agent {agent}" if agent else ""
    notes = [
        f"task {task.id}{whose} continues in the background: {task.message or task.word}",
        *question_notes(task, AGENT_STATUS),
        f'agent_status {{"task_id": "{task.id}", "wait_s": 50}} returns its result.',
    ]
    return unfinished(task, notes)


def unfinished(task: TaskRecord, notes: Sequence[str]) -> ToolResult:
    """Return the state of a task without a result yet, and how to get it."""
    agent = agent_of(task)
    data = {"task_id": task.id, "status": task.word, **({"agent_id": agent} if agent else {})}
    return ToolResult(content="\n".join(notes), structured=with_notes(data, notes))


def typed(result: dict[str, Any]) -> ToolResult:
    """Return a result of the protocol as a tool could return it."""
    return msgspec.convert(result, ReceivedToolResult).typed()
