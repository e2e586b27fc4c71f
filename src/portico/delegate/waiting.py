"""Waits for a delegated task on behalf of a call: progress, questions to a person, its result."""

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from portico.model.content import ToolResult
from portico.model.context import Ask, Context
from portico.model.errors import AskError, McpError, ToolError
from portico.protocol.eras import declares
from portico.protocol.received_results import ReceivedToolResult
from portico.providers.task_answers import is_for_model, question_text
from portico.providers.task_changes import task_changes
from portico.providers.task_host import stored
from portico.providers.task_wire import error_of, result_of
from portico.tasks.record import COMPLETED, TaskQuestion, TaskRecord

if TYPE_CHECKING:
    from portico.tasks.store import TaskStore


async def wait_for(
    store: "TaskStore", task: TaskRecord, context: Context, within_s: float
) -> ToolResult:
    """Return the result of a task; after this time, or at a question to a model, its state."""
    latest, shown, reports = task, "", 0
    asked: set[str] = set()
    try:
        async with (
            asyncio.timeout(max(within_s, 0.0)),
            task_changes(store, task.principal, task.id) as changes,
        ):
            async for latest in changes:
                if latest.is_finished:
                    return await _result(store, latest)
                for question in latest.pending:
                    if _is_to_model(question):
                        return _state(latest)
                    if question.key not in asked:  # later states may have the question, too
                        asked.add(question.key)
                        await _ask_person(store, latest, question, context)
                if latest.message and latest.message != shown:
                    shown, reports = latest.message, reports + 1
                    await context.progress(reports, message=shown)
    except TimeoutError:
        now = await stored(store.get(task.principal, task.id))
        latest = latest if now is None else now
        if latest.is_finished:
            return await _result(store, latest)
    return _state(latest)


async def _result(store: "TaskStore", task: TaskRecord) -> ToolResult:
    payload = await stored(store.result(task))
    if task.state is COMPLETED:
        return typed(msgspec.json.decode(result_of(payload)))
    why = msgspec.json.decode(error_of(task, payload)).get("message", "")
    raise ToolError(f"task {task.id} was {task.state}: {why}")


async def _ask_person(
    store: "TaskStore", task: TaskRecord, question: TaskQuestion, context: Context
) -> None:
    """Ask the person in front of the client, if it can; else the question stays open."""
    body = msgspec.json.decode(question.body)
    if not declares(context.client_capabilities, "elicitation", "form"):
        return
    ask = Ask(body["method"], body["params"], "elicitation", "form")
    asking = asyncio.ensure_future(context.ask({question.key: ask}))
    closing = asyncio.ensure_future(_until_closed(store, task, question))
    try:
        await asyncio.wait({asking, closing}, return_when=asyncio.FIRST_COMPLETED)
        if not asking.done():
            return
        answer = msgspec.json.encode(asking.result()[question.key])
    except (AskError, McpError):
        return
    finally:
        asking.cancel()
        closing.cancel()
    await stored(store.answer(task.principal, task.id, {question.key: answer}))


async def _until_closed(store: "TaskStore", task: TaskRecord, question: TaskQuestion) -> None:
    """Wait until a question needs no answer any more: another answered it, or it expired."""
    async with task_changes(store, task.principal, task.id) as changes:
        async for latest in changes:
            if all(one.key != question.key for one in latest.pending):
                return


def _is_to_model(question: TaskQuestion) -> bool:
    return is_for_model(msgspec.json.decode(question.body).get("params", {}))


def _state(task: TaskRecord) -> ToolResult:
    """Return the state of a task that continues in the background."""
    lines = [f"task {task.id} continues in the background: {task.message or task.state}"]
    for question in task.pending:
        lines.append(question_text(question.body))
        if _is_to_model(question):
            lines.append("Answer it with agent_status and `answer`.")
        else:
            lines.append(f"A person can answer it with `portico tasks answer {task.id}`.")
    lines.append(f'agent_status {{"task_id": "{task.id}", "wait_s": 50}} returns its result.')
    status = "input_required" if task.pending else "working"
    return ToolResult(content="\n".join(lines), structured={"task_id": task.id, "status": status})


def typed(result: dict[str, Any]) -> ToolResult:
    """Return a result of the protocol as a tool could return it."""
    return msgspec.convert(result, ReceivedToolResult).typed()
