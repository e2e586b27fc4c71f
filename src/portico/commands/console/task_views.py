"""Tasks as `portico tasks` shows them: lines for people, and JSON."""

import argparse
import sys
import time
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct

from portico.commands.console.render import Screen
from portico.commands.console.result import show_result
from portico.commands.console.tables import aligned, duration, on_one_line, shortened
from portico.core.model.context import LOCAL
from portico.core.model.errors import PorticoError
from portico.core.model.wording import counted, plain
from portico.core.protocol.codec import NO_RAW, decoded
from portico.library.tasks.mcp.task_answers import question_text
from portico.library.tasks.mcp.task_wire import agent_of, error_of, reason_of, result_of
from portico.library.tasks.store.record import (
    COMPLETED,
    ID_PREFIX,
    INTERRUPTED,
    TaskLimits,
    TaskRecord,
)

if TYPE_CHECKING:
    from portico.library.tasks.store.store import TaskStore

_HEAD = ("id", "age", "state", "kind", "tool", "agent", "message")
_AGENT = _HEAD.index("agent")
_SHORT = len(ID_PREFIX) + 8
_MAX_MESSAGE = 80
_MAX_ARGUMENTS = 400
_MAX_AMBIGUOUS = 4


class _Arguments(Struct, frozen=True):
    arguments: Raw = NO_RAW


class _Input(Struct):
    """The parts of the inputs of all kinds of tasks that are shown to people."""

    name: str = ""
    server: str = ""
    params: _Arguments = _Arguments()
    task_type: str = ""
    """Of work that is delegated to an agent, in place of a tool's name."""
    prompt: str = ""
    agent_id: str = ""
    """The agent that the work was meant for, before one has it."""


def short(task: TaskRecord) -> str:
    """Return the beginning of a task's id, by which commands find it."""
    return task.id[:_SHORT]


async def every_task(store: "TaskStore") -> AsyncIterator[TaskRecord]:
    """Yield this user's tasks, newest first, each followed by those that its agent started."""
    cursor: str | None = None
    while (page := await store.page(LOCAL, cursor=cursor)) is not None:
        for _, task in await store.with_nested(page.tasks):
            yield task
        cursor = page.cursor
        if cursor is None:
            return


async def find_task(store: "TaskStore", given: str) -> TaskRecord:
    """Return the task with this id, or with an id that begins so; raises PorticoError."""
    starts = (given, f"{ID_PREFIX}{given}")
    found = [task async for task in every_task(store) if task.id.startswith(starts)]
    found = [task for task in found if task.id == given] or found
    if len(found) == 1 and given:
        return found[0]
    if not found or not given:
        raise PorticoError(
            f"there is no task {given[:40]!r}; `portico tasks list` shows those that exist"
        )
    named = ", ".join(task.id for task in found[:_MAX_AMBIGUOUS])
    more = "" if len(found) <= _MAX_AMBIGUOUS else " and more"
    raise PorticoError(f"{given!r} matches several tasks; give more characters: {named}{more}")


async def tool_of(store: "TaskStore", task: TaskRecord) -> str:
    """Return the name of the tool that a task calls, or the type of work of an agent."""
    return _tool(await _input(store, task))


async def _input(store: "TaskStore", task: TaskRecord) -> _Input:
    raw = await store.input(task)
    return (None if raw is None else decoded(raw, _Input)) or _Input()


def _tool(given: _Input) -> str:
    return given.name or given.task_type


def _agent(task: TaskRecord, given: _Input) -> str:
    return agent_of(task) or given.agent_id


# Lists.


async def show_list(
    store: "TaskStore",
    tasks: Sequence[TaskRecord],
    resumed: Collection[str],
    options: argparse.Namespace,
    *,
    is_cut: bool,
) -> None:
    """Print a table of tasks, and what can be done about them; `resumed` ids need nothing."""
    screen = Screen(sys.stdout)
    if options.json:
        screen.data([await task_data(store, task) for task in tasks])
        return
    damaged = await store.damaged()
    if damaged:
        Screen(sys.stderr).print(
            f"portico: {counted(len(damaged), 'task')} cannot be read: {', '.join(damaged)}; "
            "remove damaged records with `portico tasks prune --damaged`"
        )
    if not tasks:
        screen.print("no tasks" if options.state is None else f"no tasks are {options.state}")
        return
    inputs = [await _input(store, task) for task in tasks]
    depths: dict[str, int] = {}
    for task in tasks:
        depths[task.id] = depths.get(task.parent, -1) + 1
    rows = [_HEAD, *map(_row, tasks, inputs, depths.values())]
    if not any(given.task_type for given in inputs):  # nothing was delegated
        rows = [(*row[:_AGENT], *row[_AGENT + 1 :]) for row in rows]
    for line in aligned(rows):
        screen.print(line)
    for note in _notes(tasks, resumed):
        screen.print(note, "yellow")
    if is_cut:
        screen.print("there are more; show them with --limit N", "dim")


def _row(task: TaskRecord, given: _Input, depth: int) -> tuple[str, ...]:
    questions = question_lines(task)
    message = questions[0] if questions else task.message
    age = duration(max(0.0, time.time() - task.created_at))
    cells = ("  " * depth + short(task), age, _state(task), _kind(task))
    who = (_tool(given) or "-", _agent(task, given) or "-")
    return (*cells, *who, shortened(message, _MAX_MESSAGE))


def _state(task: TaskRecord) -> str:
    if task.is_cancel_requested and not task.is_finished:
        return f"{task.word}, to be cancelled"
    return task.word


def _kind(task: TaskRecord) -> str:
    return task.kind.partition("@")[0]


def _notes(tasks: Sequence[TaskRecord], resumed: Collection[str]) -> Iterator[str]:
    # A nested question is one of the parent, too.
    waiting = [task for task in tasks if task.pending and not task.parent]
    if waiting:
        words = "task waits for an answer" if len(waiting) == 1 else "tasks wait for answers"
        yield f"{len(waiting)} {words}: `portico tasks answer {short(waiting[0])}`"
    lost = [task for task in tasks if task.state is INTERRUPTED and task.id not in resumed]
    if lost:
        words = "was interrupted" if len(lost) == 1 else "were interrupted"
        how = f"start one again with `portico tasks resume {short(lost[0])}`"
        yield f"{counted(len(lost), 'task')} {words}; {how}"
    held = [task for task in tasks if task.is_finished and task.is_held]
    if held:
        words = "has changes" if len(held) == 1 else "have changes"
        how = f"show them with `portico tasks diff {short(held[0])}`"
        yield f"{counted(len(held), 'task')} {words} that were not collected; {how}"


# One task.


async def show_task(store: "TaskStore", task: TaskRecord, *, as_json: bool) -> None:
    """Print everything about a task."""
    screen = Screen(sys.stdout)
    if as_json:
        screen.data(await task_data(store, task, in_full=True))
        return
    screen.print(f"task {task.id}", "bold")
    successors = [one.id async for one in every_task(store) if one.resumes == task.id]
    for key, what in _facts(task, await _input(store, task), successors):
        screen.print(f"  {key.ljust(9)}  {on_one_line(what)}")
    events = await store.events(task)
    if events:
        screen.table("Events", [(_local(one.at), on_one_line(one.text)) for one in events])
    if task.pending:
        numbered = enumerate(question_lines(task), 1)
        screen.table("Questions", [(f"{number}.", line) for number, line in numbered])
    if task.is_finished:
        screen.print("")
        screen.print("Result" if task.state is COMPLETED else "Error", "bold")
        await print_result(store, task, screen)
    for line in _next_steps(task, is_resumed=bool(successors)):
        screen.print(line, "dim")


def _facts(task: TaskRecord, given: _Input, successors: Sequence[str]) -> Iterator[tuple[str, str]]:
    owner = task.lease.owner.partition("-")[0] if task.lease is not None else ""
    yield "state", f"{_state(task)}{f', in process {owner}' if owner else ''}"
    yield "kind", _kind(task)
    if given.name:
        yield "tool", given.name
    if given.task_type:
        yield "agent", _agent(task, given) or "not chosen yet"
        yield "type", given.task_type
        yield "prompt", shortened(given.prompt, _MAX_ARGUMENTS)
    if given.server:
        yield "server", f"{given.server}, which has a task of its own"
    if given.params.arguments:
        yield "arguments", shortened(bytes(given.params.arguments).decode(), _MAX_ARGUMENTS)
    if task.message:
        yield "message", task.message
    yield "created", f"{_local(task.created_at)} ({_ago(task.created_at)} ago)"
    if task.finished_at is not None:
        yield "finished", f"{_local(task.finished_at)} (took {duration(_taken_s(task))})"
        yield "kept", _kept(task)
    else:
        yield "updated", f"{_local(task.updated_at)} ({_ago(task.updated_at)} ago)"
    if task.starts > 1:
        yield "started", f"{task.starts} times"
    if task.usage:
        yield "usage", ", ".join(f"{name} {plain(amount)}" for name, amount in task.usage.items())
    if task.parent:
        yield "parent", f"{task.parent}, whose agent started it"
    if task.resumes:
        yield "resumes", task.resumes
    if successors:
        yield "resumed", f"by {', '.join(successors)}"


def _kept(task: TaskRecord) -> str:
    if task.is_held:
        return "until its changes are collected or discarded"
    return f"until {_local(task.expires_at(TaskLimits()))}"


def _next_steps(task: TaskRecord, *, is_resumed: bool) -> Iterator[str]:
    command, id = "portico tasks", short(task)
    if task.pending:
        yield f"\nanswer with `{command} answer {id}`; end it with `{command} cancel {id}`"
    elif not task.is_finished:
        yield f"\nwait for it with `{command} wait {id}`; end it with `{command} cancel {id}`"
    elif task.is_resumable and not is_resumed:
        yield f"\nstart it again with `{command} resume {id}`"
    if task.is_finished and task.is_held:
        yield f"\nits changes are in a worktree: show them with `{command} diff {id}`"
        yield f"apply them with `{command} collect {id}`, or remove them with `discard`"


def question_lines(task: TaskRecord) -> list[str]:
    """Return the open questions of a task, each on one line."""
    return [on_one_line(question_text(one.body)) for one in task.pending]


async def print_result(store: "TaskStore", task: TaskRecord, screen: Screen | None = None) -> None:
    """Print the result or the error of a finished task, as `portico call` does."""
    payload = await store.result(task)
    if task.state is COMPLETED:
        result = msgspec.json.decode(result_of(payload) or b'{"content":[]}', type=dict[str, Any])
        show_result(result, screen or Screen(sys.stderr if task.is_error else sys.stdout))
        return
    why = reason_of(task, payload)
    if screen is not None:
        screen.print(f"  {why or task.state}", "red")
        return
    words = f"{task.state}: {why}" if why else str(task.state)
    Screen(sys.stderr).print(f"portico: {short(task)} is {words}")


async def task_data(
    store: "TaskStore", task: TaskRecord, *, in_full: bool = False
) -> dict[str, Any]:
    """Return a task as JSON data; `in_full` with its arguments, events, and its result or error."""
    given = await _input(store, task)
    data: dict[str, Any] = {
        "id": task.id,
        "state": task.word,
        "kind": _kind(task),
        "tool": _tool(given) or None,
        "agent": _agent(task, given) or None,
        "server": given.server or None,
        "message": task.message,
        "created_at": _utc(task.created_at),
        "updated_at": _utc(task.updated_at),
        "finished_at": None if task.finished_at is None else _utc(task.finished_at),
        "is_error": task.is_error,
        "is_cancel_requested": task.is_cancel_requested,
        "is_held": task.is_held,
        "parent": task.parent or None,
        "resumes": task.resumes or None,
        "starts": task.starts,
        "usage": task.usage,
        "questions": [{"key": one.key, **msgspec.json.decode(one.body)} for one in task.pending],
    }
    if in_full:
        data["arguments"] = given.params.arguments or None
        events = await store.events(task)
        data["events"] = [{"at": _utc(one.at), "text": one.text} for one in events]
        if task.is_finished:
            payload = await store.result(task)
            is_result = task.state is COMPLETED
            raw = (result_of(payload) or b"{}") if is_result else error_of(task, payload)
            data["result" if is_result else "error"] = Raw(raw)
    return data


def _taken_s(task: TaskRecord) -> float:
    return (task.finished_at or task.updated_at) - task.created_at


def _ago(at: float) -> str:
    return duration(max(0.0, time.time() - at))


def _local(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _utc(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
