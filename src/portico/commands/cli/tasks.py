"""`portico tasks`: list, follow, answer, cancel and resume tasks, which are calls that take long.

The store is a file that several processes share: a running gateway notices every change.
"""

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from portico.commands.console.argument_types import integer, seconds, valued
from portico.commands.console.parser import Parser
from portico.library.tasks.store.record import COMPLETED, TaskRecord, TaskState
from portico.upstream.process.family import refuse_below_agent

if TYPE_CHECKING:
    from portico.library.tasks.store.store import TaskStore

_USAGE = """\
portico tasks list [--state STATE] [--limit N] [--json]
       portico tasks show ID [--json]
       portico tasks wait ID [--timeout S] [--json]
       portico tasks answer ID [ANSWER | --form JSON] [--question KEY] [--json]
       portico tasks cancel ID... | --all [--json]
       portico tasks resume ID [--json]
       portico tasks diff ID [--json]
       portico tasks collect ID [--branch]
       portico tasks discard ID [--yes]
       portico tasks prune [(--finished | --damaged) [--yes]] [--json]"""
_ACTIONS = {
    "list": "show the tasks, newest first",
    "show": "show everything about a task: its events, questions and result",
    "wait": "wait until a task ends, and print its result",
    "answer": "answer a question of a task, in a form if no ANSWER is given",
    "cancel": "end tasks",
    "resume": "do the work of an interrupted, failed or cancelled task again",
    "diff": "show the changes in a task's worktree as a patch",
    "collect": "apply the changes in a task's worktree to your files",
    "discard": "remove a task's worktree and its changes",
    "prune": "remove the tasks that have expired",
}
_OPTION_ACTIONS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("state", "limit"), ("list",)),
    "timeout": ("wait",),
    **dict.fromkeys(("form", "question"), ("answer",)),
    "all": ("cancel",),
    "branch": ("collect",),
    **dict.fromkeys(("finished", "damaged"), ("prune",)),
    "yes": ("prune", "discard"),
}
_READING = ("list", "show", "wait", "diff")
_WITHOUT_ID = ("list", "prune")
_APPLIES: dict[str, Callable[[TaskRecord], bool]] = {
    "show": lambda _: True,
    "wait": lambda task: not task.is_finished,
    "cancel": lambda task: not task.is_finished,
    "answer": lambda task: bool(task.pending),
    "resume": lambda task: task.is_resumable,
    **dict.fromkeys(("diff", "collect", "discard"), lambda task: task.is_held),
}
"""The tasks that an action applies to, for completion."""
_LIMIT = 20


def main(argv: list[str]) -> int:
    """Run one action and return the exit code."""
    options = _options(argv)
    if options.action not in _READING:
        refuse_below_agent(f"portico tasks {options.action}")
    return asyncio.run(_run(options))


@asynccontextmanager
async def _opened() -> "AsyncIterator[TaskStore]":
    """Open the store; the tasks of processes that have ended are queued or interrupted first."""
    from portico.core.config.paths import state_folder
    from portico.library.tasks.store.store import tasks_in_folder

    store = tasks_in_folder(state_folder())
    try:
        await store.recover()
        yield store
    finally:
        await store.close()


async def _run(options: argparse.Namespace) -> int:
    from portico.commands.cli import task_actions, task_changes_command

    actions = {
        "list": _list,
        "show": _show,
        "wait": _wait,
        "answer": task_actions.answer,
        "cancel": task_actions.cancel,
        "resume": task_actions.resume,
        "prune": task_actions.prune,
        "diff": task_changes_command.diff,
        "collect": task_changes_command.collect,
        "discard": task_changes_command.discard,
    }
    async with _opened() as store:
        return await actions[options.action](store, options)


async def _list(store: "TaskStore", options: argparse.Namespace) -> int:
    from portico.commands.console.task_views import every_task, show_list

    found: list[TaskRecord] = []
    resumed: set[str] = set()
    is_cut = False
    async for task in every_task(store):
        resumed.add(task.resumes)
        if options.state is not None and task.word != options.state:
            continue
        if len(found) == (options.limit or _LIMIT):
            is_cut = True
            break
        found.append(task)
    await show_list(store, found, resumed, options, is_cut=is_cut)
    return 0


async def _show(store: "TaskStore", options: argparse.Namespace) -> int:
    from portico.commands.console.task_views import find_task, show_task

    await show_task(store, await find_task(store, options.words[0]), as_json=options.json)
    return 0


async def _wait(store: "TaskStore", options: argparse.Namespace) -> int:
    """Wait for a task; 0 if it completed, and its tool did not fail."""
    from portico.commands.cli.task_actions import ended_task, taken_by
    from portico.commands.console.render import Screen, Ticker
    from portico.commands.console.spoken_text import SpokenText, print_end
    from portico.commands.console.task_views import find_task, question_lines, short, task_data
    from portico.core.config.paths import state_folder
    from portico.core.model.errors import PorticoError

    task, err = await find_task(store, options.words[0]), Screen(sys.stderr)
    out = None if options.json else Screen(sys.stdout)
    spoken = SpokenText(state_folder(), task.id, out, Ticker(err))
    told: set[str] = set()

    def tell(now: TaskRecord) -> None:
        """Show changes on standard error, each once, and the text of an agent."""
        lines = ["" if spoken.has_said(now.message) else now.message, *question_lines(now)]
        if now.state is TaskState.QUEUED:
            lines.append(taken_by(now.kind)[0])
        for line in lines:
            if line and line not in told:
                told.add(line)
                spoken.break_line()
                err.print(line, "dim")
                err.stream.flush()

    ended = await ended_task(store, task.id, options.timeout, tell)
    if not ended.is_finished:
        raise PorticoError(
            f"{short(ended)} is still {ended.word} after {options.timeout:g} s; "
            f"`portico tasks show {short(ended)}` shows it"
        )
    if options.json:
        Screen(sys.stdout).data(await task_data(store, ended, in_full=True))
    else:
        await print_end(store, ended, spoken)
    return 0 if ended.word == COMPLETED else 1


async def suggested_ids(action: str) -> list[str]:
    """The ids of the tasks that an action applies to, each with its state after a tab."""
    from portico.commands.console.task_views import every_task

    fits = _APPLIES.get(action)
    if fits is None:
        return []
    async with _opened() as store:
        return [f"{task.id}\t{task.word}" async for task in every_task(store) if fits(task)]


def _options(argv: list[str]) -> argparse.Namespace:
    """Parse the command line; wrong usage ends the command."""
    parser = _parser()
    if not argv:
        parser.error(f"give an action: {', '.join(_ACTIONS)}")
    options: argparse.Namespace = parser.parse_intermixed_args(argv)
    for option, wanted in _OPTION_ACTIONS.items():
        if options.action not in wanted and getattr(options, option):
            parser.error(f"--{option} works only with {' and '.join(wanted)}")
    action, words = options.action, options.words
    if action in _WITHOUT_ID and words:
        parser.error(f"{action} takes no ID")
    if action not in _WITHOUT_ID and not words and not options.all:
        parser.error(f"{action} needs the ID of a task; `portico tasks list` shows them")
    if options.all and words:
        parser.error("give either --all or IDs, not both")
    if action not in ("answer", "cancel") and len(words) > 1:
        parser.error(f"{action} takes one ID")
    if options.form is not None and len(words) > 1:
        parser.error("give either an ANSWER or --form, not both")
    if options.finished and options.damaged:
        parser.error("give either --finished or --damaged, not both")
    if options.yes and action == "prune" and not (options.finished or options.damaged):
        parser.error(
            "--yes works only with --finished and --damaged; expired tasks need no confirmation"
        )
    return options


def _parser() -> Parser:
    width = max(map(len, _ACTIONS))
    parser = Parser(
        prog="portico tasks",
        usage=_USAGE,
        description="List, follow, answer, cancel and resume tasks: calls that take long, and "
        "outlive the client that made them. The beginning of an ID is enough.",
        epilog="\n".join(
            ("actions:", *(f"  {action.ljust(width)}  {what}" for action, what in _ACTIONS.items()))
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("action", choices=tuple(_ACTIONS), metavar="ACTION", help=f"one of {', '.join(_ACTIONS)}")
    add("words", nargs="*", metavar="ID", help="the task; for answer also the ANSWER")
    states = tuple(map(str, TaskState))
    add("--state", choices=states, metavar="STATE", help=f"with list: {', '.join(states)}")
    what = f"with list: show at most N tasks (default {_LIMIT})"
    valued(add, "--limit", integer("a number from 1 to 10000", 1, 10_000), "N", what)
    valued(add, "--timeout", seconds, "S", "with wait: how long to wait (default: until it ends)")
    what = "with answer: the content of a form, or any other answer, as JSON"
    valued(add, "--form", str, "JSON", what)
    what = "with answer: the number or the key of a question (default: the first one)"
    valued(add, "--question", str, "KEY", what)
    parser.add_flag("--all", "with cancel: all tasks that are not finished")
    parser.add_flag("--finished", "with prune: all finished tasks")
    parser.add_flag("--damaged", "with prune: all tasks with damaged records")
    parser.add_flag("--yes", "with discard, --finished and --damaged: do not ask")
    parser.add_flag("--branch", "with collect: leave the changes as a branch")
    parser.add_json()
    return parser
