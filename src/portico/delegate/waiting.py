"""Waits for a delegated task on behalf of a call: progress, questions to a person, its result."""

from typing import TYPE_CHECKING, Any

import msgspec

from portico.model.content import ToolResult
from portico.model.context import Context
from portico.model.errors import ToolError
from portico.protocol.received_results import ReceivedToolResult
from portico.providers.task_answers import is_for_person, question_text, settled_task
from portico.providers.task_host import stored
from portico.providers.task_wire import reason_of, result_of
from portico.tasks.record import COMPLETED, TaskRecord

if TYPE_CHECKING:
    from portico.tasks.store import TaskStore


async def wait_for(
    store: "TaskStore", task: TaskRecord, context: Context, within_s: float
) -> ToolResult:
    """Return the result of a task; after this time, or at a question to a model, its state.

    No time passes while the person in front of the client has a question.
    """
    shown, reports = "", 0

    async def report(latest: TaskRecord) -> None:
        nonlocal shown, reports
        if latest.message and latest.message != shown:
            shown, reports = latest.message, reports + 1
            await context.progress(reports, message=shown)

    latest = await settled_task(store, task, context, within_s, changed=report, or_question=False)
    return await _result(store, latest) if latest.is_finished else _state(latest)


async def _result(store: "TaskStore", task: TaskRecord) -> ToolResult:
    payload = await stored(store.result(task))
    if task.state is COMPLETED:
        return typed(msgspec.json.decode(result_of(payload)))
    why = reason_of(task, payload)
    raise ToolError(f"task {task.id} was {task.state}{why and ': '}{why}")


def _state(task: TaskRecord) -> ToolResult:
    """Return the state of a task that continues in the background."""
    lines = [f"task {task.id} continues in the background: {task.message or task.state}"]
    for question in task.pending:
        lines.append(question_text(question.body))
        if is_for_person(question.body):
            lines.append(f"A person can answer it with `portico tasks answer {task.id}`.")
        else:
            lines.append("Answer it with agent_status and `answer`.")
    lines.append(f'agent_status {{"task_id": "{task.id}", "wait_s": 50}} returns its result.')
    status = "input_required" if task.pending else "working"
    return ToolResult(content="\n".join(lines), structured={"task_id": task.id, "status": status})


def typed(result: dict[str, Any]) -> ToolResult:
    """Return a result of the protocol as a tool could return it."""
    return msgspec.convert(result, ReceivedToolResult).typed()
