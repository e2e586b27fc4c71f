"""`portico tasks answer`, `cancel`, `resume` and `prune`: change the stored tasks."""

import argparse
import asyncio
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from portico.commands.console.form import is_confirmed
from portico.commands.console.render import Screen
from portico.commands.console.task_form import QuestionClosed, asked_at_terminal, has_answer
from portico.commands.console.task_views import every_task, find_task, short, task_data
from portico.core.model.context import LOCAL
from portico.core.model.errors import McpError, PorticoError
from portico.core.model.wording import counted
from portico.library.functions.rounds import check_answer
from portico.library.tasks.mcp.task_answers import typed_answer
from portico.library.tasks.store.record import (
    CANCELLED,
    QUEUED,
    NotAccepted,
    OpenQuestion,
    TaskRecord,
)

if TYPE_CHECKING:
    from portico.library.tasks.store.store import TaskStore

_POLL_S = 0.25
_CANCEL_S = 5.0
"""How long the work of a cancelled task may take to stop, before that is reported."""


async def ended_task(
    store: "TaskStore",
    id: str,
    within_s: float | None,
    tell: Callable[[TaskRecord], None] = lambda _: None,
) -> TaskRecord:
    """Wait for the end of a task; return it as it is then, or after this time."""
    until = None if within_s is None else time.monotonic() + within_s
    while True:
        await store.recover()  # its process may have been killed, and no other one may run
        task = await store.find(LOCAL, id)
        if task is None:
            raise PorticoError(f"{id} does not exist any more: it has expired, or was removed")
        if task.is_finished or (until is not None and time.monotonic() >= until):
            return task
        tell(task)
        await asyncio.sleep(_POLL_S)


# Answers.


async def answer(store: "TaskStore", options: argparse.Namespace) -> int:
    """Answer one question of a task; 1 if the user closed the form."""
    task = await find_task(store, options.words[0])
    question = _question(task, options.question)
    if options.form is not None:
        given = _json(options.form)
    elif len(options.words) > 1:
        given = " ".join(options.words[1:])
    else:
        given = await asked_at_terminal(store, task, question)
        if given is None:
            Screen(sys.stderr).print("portico: nothing was sent; the question is still open")
            return 1
    try:
        typed = typed_answer(question.body, given, by_model=False)
        assert typed is not None
        check_answer(question.body, typed)
    except McpError as error:
        raise PorticoError(f"cannot answer {short(task)}: {error.message}") from None
    answered = await store.answer(task.principal, task.id, {question.key: typed})
    if answered is None or not has_answer(answered, question.key, typed):
        raise QuestionClosed(task)
    if options.json:
        Screen(sys.stdout).data(await task_data(store, answered))
        return 0
    left = len(answered.pending)
    more = f"; {counted(left, 'question')} left" if left else ""
    Screen(sys.stdout).print(f"answered {short(task)}{more}")
    return 0


def _question(task: TaskRecord, wanted: str | None) -> OpenQuestion:
    """Return the question with this number or key; without either, the first one."""
    if not task.pending:
        raise PorticoError(f"{short(task)} is {task.word}: it has no open question")
    if wanted is None:
        return task.pending[0]
    for number, question in enumerate(task.pending, 1):
        if wanted in (str(number), question.key):
            return question
    raise PorticoError(
        f"{short(task)} has no open question {wanted[:40]!r}; "
        f"`portico tasks show {short(task)}` numbers them"
    )


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise PorticoError(f"--form is not JSON: {error}") from None


# Ends and beginnings.


async def cancel(store: "TaskStore", options: argparse.Namespace) -> int:
    """Request the end of tasks; 1 if one of them ended otherwise."""
    if options.all:
        tasks = [task async for task in every_task(store) if not task.is_finished]
    else:
        tasks = [await find_task(store, word) for word in options.words]
    for task in tasks:
        await store.cancel(task.principal, task.id)
    until = time.monotonic() + _CANCEL_S
    ended = [await ended_task(store, task.id, until - time.monotonic()) for task in tasks]
    if options.json:
        Screen(sys.stdout).data([await task_data(store, task) for task in ended])
    elif not tasks:
        Screen(sys.stdout).print("no task is in progress")
    else:
        for before, task in zip(tasks, ended, strict=True):
            Screen(sys.stdout).print(_cancelled(before, task))
    return 1 if any(task.is_finished and task.state is not CANCELLED for task in ended) else 0


def _cancelled(before: TaskRecord, task: TaskRecord) -> str:
    if before.is_finished:
        return f"{short(task)} is {task.word} already"
    if task.state is CANCELLED:
        return f"cancelled {short(task)}"
    if task.is_finished:
        return f"{short(task)} is {task.word}: it ended before it could be cancelled"
    owner = task.lease.owner.partition("-")[0] if task.lease is not None else "?"
    return f"{short(task)} is to be cancelled; its work in process {owner} has not stopped yet"


async def resume(store: "TaskStore", options: argparse.Namespace) -> int:
    """Store a task that does the work of an unsuccessful one again."""
    task, now = await find_task(store, options.words[0]), time.time()
    if task.parent:
        raise PorticoError(
            f"cannot resume {short(task)}: the agent of {task.parent} started it; resume that one"
        )
    try:
        fresh = await store.resume(LOCAL, task.id)
    except NotAccepted as refused:
        raise PorticoError(f"cannot resume {short(task)}: {refused}") from None
    if fresh is None:
        raise PorticoError(f"cannot resume {short(task)}: it has expired meanwhile")
    words, process = taken_by(fresh.kind)
    if options.json:
        data = await task_data(store, fresh)
        Screen(sys.stdout).data({**data, "process": process})
        return 0
    screen = Screen(sys.stdout)
    if fresh.created_at < now:
        screen.print(f"{short(task)} was resumed before, by {fresh.id}, which is {fresh.word}")
    else:
        screen.print(f"{fresh.id} resumes {short(task)}")
    if fresh.state is QUEUED:
        Screen(sys.stderr).print(words)
    return 0


def taken_by(kind: str) -> tuple[str, int | None]:
    """Return who takes queued tasks of this kind, for people, and the process if one runs."""
    from portico.commands.console.running import running_statuses
    from portico.core.config.paths import control_folder
    from portico.edge.windows.owner_lock import owner_of
    from portico.gateway.serve.serve_options import key_of

    scope = kind.partition("@")[2]
    if scope.startswith("wrap:"):
        return "it waits for `portico wrap` of the same server", None
    owner = owner_of(control_folder(), scope.removesuffix("-"))
    for name, status in running_statuses():
        is_alone = bool(status.get("config")) and scope == f"{key_of(str(status['config']))}-"
        if name == owner or is_alone:
            pid = int(status["pid"])
            return f"the gateway in process {pid} takes it within a few seconds", pid
    return "no gateway of its config is running: it waits for the next `portico serve`", None


async def prune(store: "TaskStore", options: argparse.Namespace) -> int:
    """Remove expired tasks, all finished or all damaged ones; 1 if the user declined."""
    if options.finished or options.damaged:
        finished = [task async for task in every_task(store) if task.is_finished]  # finds damage
        damaged = len(await store.damaged())
        count = damaged if options.damaged else sum(not task.is_held for task in finished)
        kind = "damaged" if options.damaged else "finished"
        tasks = counted(count, "task")
        unasked = f"{tasks} would be removed with their results: confirm it with --yes"
        question = f"Remove {counted(count, f'{kind} task')} with their results?"
        if count and not options.yes and not await is_confirmed(question, unasked):
            Screen(sys.stderr).print("portico: nothing was removed")
            return 1
    if options.damaged:
        removed = await store.remove_damaged()
    elif options.finished:
        removed = await store.remove_finished(LOCAL)
    else:
        removed = await store.prune()
    from portico.commands.cli.task_changes_command import uncollected

    kept = await uncollected(store)
    screen = Screen(sys.stdout)
    if options.json:
        screen.data({"removed": removed, "kept": kept})
        return 0
    screen.print(f"removed {counted(removed, 'task')}")
    if kept:
        screen.print(
            f"kept {counted(len(kept), 'task')} with changes that were not collected: "
            f"{', '.join(kept)}; "
            "`portico tasks diff ID` shows them, `collect` and `discard` end that"
        )
    return 0
