"""`portico delegate`: hand a task to another agent, and follow it at the terminal.

The gateway's owner runs the task, so it continues when this command ends.
"""

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from portico.agents.delegation.stored_delegation import (
    StoredDelegation,
    note_in,
    stored_result,
)
from portico.commands.cli.agents import configured_agents, explain_prompt, is_delegated
from portico.commands.console.argument_types import seconds, valued
from portico.commands.console.form import InputClosed, can_ask, read_line
from portico.commands.console.parser import Parser
from portico.commands.console.render import Screen, Ticker
from portico.core.config.paths import config_file, state_folder
from portico.core.model.context import LOCAL
from portico.core.model.errors import PorticoError
from portico.core.protocol.codec import encode
from portico.library.tasks.store.record import COMPLETED, OpenQuestion, TaskRecord
from portico.upstream.process.family import refuse_below_agent

if TYPE_CHECKING:
    from portico.commands.console.spoken_text import SpokenText
    from portico.core.config.agents_schema import AgentsConfig
    from portico.library.tasks.store.store import TaskStore

_MAX_LINE = 16 << 20


def main(argv: list[str]) -> int:
    """Delegate a prompt; return 0 if the agent completed the task."""
    options = _options(argv)
    refuse_below_agent("portico delegate")
    path = options.config or config_file()
    config = configured_agents(path)
    enabled = [entry for entry in config.entries.values() if entry.enabled]
    if not enabled:
        agents = ", ".join(config.entries)
        raise PorticoError(
            f"{path}: no agent is enabled ({agents}); "
            "set enabled = true for one of them, or remove enabled = false"
        )
    if options.resume:
        asyncio.run(_find_resumed(options))
    elif options.agent and not options.type:
        options.type = _type_for(options.agent, config)
    elif not options.type:
        types = sorted({word for entry in enabled for word in entry.capabilities})
        if len(types) != 1:
            raise PorticoError(f"give --type TYPE: {', '.join(types)}")
        options.type = types[0]
    if options.explain:
        return explain_prompt(config, options)
    return asyncio.run(_delegate(path, options))


def _type_for(agent: str, config: "AgentsConfig") -> str:
    """Return the type of a task for this agent."""
    from portico.agents.routing.routing import unknown_agent

    if agent not in config.entries:
        raise PorticoError(unknown_agent(agent, config.entries))
    return config.entries[agent].default_type


async def _find_resumed(options: argparse.Namespace) -> None:
    """Replace the beginning of an id after --resume by the id; with --explain, add the type and
    the agent of that task, as the gateway does. Raises PorticoError."""
    from portico.commands.console.task_views import find_task, short
    from portico.library.tasks.store.store import tasks_in_folder

    store = tasks_in_folder(state_folder())
    try:
        task = await find_task(store, options.resume)
        input = await store.input(task)
        if input is None or not is_delegated(task):
            raise PorticoError(f"--resume: {short(task)} was not delegated to an agent")
        if not task.is_finished:
            raise PorticoError(f"--resume: {short(task)} is {task.word}; wait for it, or cancel it")
        result = stored_result(await store.result(task))
    finally:
        await store.close()
    options.resume = task.id
    if options.explain:
        first = msgspec.json.decode(input, type=StoredDelegation)
        known = (note_in(task.note) if result is None else result).agent_id or first.agent_id
        options.type = options.type or first.task_type
        options.agent = options.agent or known


async def _delegate(path: str, options: argparse.Namespace) -> int:
    from portico.library.tasks.store.store import tasks_in_folder

    task = await _submit(path, options)
    id, out, err = task["task_id"], Screen(sys.stdout), Screen(sys.stderr)
    if options.background:
        if options.json:
            out.data(task)
        else:
            out.print(id)
            agent = f"{task['agent_id']} works on it; " if "agent_id" in task else ""
            err.print(f"{agent}follow it with `portico tasks wait {id}`", "dim")
        return 0
    store = tasks_in_folder(state_folder())
    try:
        return await _follow(store, id, options)
    finally:
        await store.close()


async def _submit(path: str, options: argparse.Namespace) -> dict[str, Any]:
    """Submit the task through the gateway; return its id, state and agent. Raises PorticoError."""
    wanted = {
        "task_type": options.type,
        "agent_id": options.agent,
        "cwd": options.cwd,
        "timeout_s": options.timeout,
        "resume": options.resume,
    }
    arguments = {"prompt": options.prompt, "background": True}
    arguments |= {key: value for key, value in wanted.items() if value is not None}
    answer = await _call(path, {"name": "delegate_task", "arguments": arguments})
    if "error" in answer:
        raise PorticoError(answer["error"].get("message", "the gateway returned an error"))
    result = answer["result"]
    if result.get("isError"):
        raise PorticoError(_text(result))
    task: dict[str, Any] = result["structuredContent"]
    return task


async def _call(path: str, params: dict[str, Any]) -> dict[str, Any]:
    """Call a tool of the gateway through a window of our own, and return the response.

    The window is not a child of Portico's: those end with all their descendants, and the owner that
    it starts must outlive it.
    """
    from portico import __version__
    from portico.core.model.version import MODERN
    from portico.upstream.connections.handshake import modern_meta

    info = {"name": "portico", "title": "Portico", "version": __version__}
    meta = modern_meta(MODERN[-1], info, {})
    request = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"_meta": meta, **params},
    }
    argv = (sys.executable, "-P", "-m", "portico", "serve", "--stdio", "--config", path)
    window = await asyncio.create_subprocess_exec(
        *argv, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=_MAX_LINE
    )
    assert window.stdin is not None
    assert window.stdout is not None
    window.stdin.write(encode(request) + b"\n")
    answer: dict[str, Any] | None = None
    while answer is None and (line := await window.stdout.readline()):
        message = msgspec.json.decode(line)
        answer = message if message.get("id") == 1 else None
    window.stdin.close()
    await window.wait()
    if answer is None:
        raise PorticoError("the gateway ended without a response; see `portico logs`")
    return answer


def _text(result: dict[str, Any]) -> str:
    return "\n".join(str(block.get("text", "")) for block in result.get("content", []))


async def _follow(store: "TaskStore", id: str, options: argparse.Namespace) -> int:
    """Show progress, ask the task's questions, and print its result."""
    from portico.commands.console.spoken_text import SpokenText, print_end
    from portico.commands.console.task_views import task_data

    out, err = Screen(sys.stdout), Screen(sys.stderr)
    ticker = Ticker(err)
    spoken = SpokenText(state_folder(), id, None if options.json else out, ticker)
    with _on_interrupt() as interrupted:
        watching = asyncio.ensure_future(_watch(store, id, ticker, spoken))
        interruption = asyncio.ensure_future(interrupted.wait())
        await asyncio.wait({watching, interruption}, return_when=asyncio.FIRST_COMPLETED)
        interruption.cancel()
        if not watching.done():
            watching.cancel()
            await asyncio.wait({watching})
            ticker.clear()
            spoken.break_line()
            if await _may_leave(store, err, id):
                return 0
            watching = asyncio.ensure_future(_watch(store, id, ticker, spoken, asks=False))
        task = await watching
    ticker.clear()
    if task is None:
        raise PorticoError(f"task {id} does not exist any more")
    if options.json:
        out.data(await task_data(store, task, in_full=True))
    else:
        await print_end(store, task, spoken)
    return 0 if task.word == COMPLETED else 1


async def _watch(
    store: "TaskStore", id: str, ticker: Ticker, spoken: "SpokenText", *, asks: bool = True
) -> TaskRecord | None:
    """Show the changes of a task and ask its questions, each once; return it once it has ended."""
    from portico.library.tasks.mcp.task_changes import task_changes

    task: TaskRecord | None = None
    shown, message = 0, ""
    asked: set[str] = set()
    async with task_changes(store, LOCAL, id) as changes, spoken.following():
        async for task in changes:
            # The end is printed with the result, and a text speaks for itself.
            is_said = task.is_finished or spoken.has_said(task.message)
            if task.message and task.message != message and not is_said:
                shown, message = shown + 1, task.message
                spoken.break_line()
                ticker.show({"progress": shown, "message": message})
            if asks and _unasked(task, asked) is not None:
                with ticker.paused(), spoken.paused():
                    await _ask(store, task, asked)
    return task


def _unasked(task: TaskRecord, asked: set[str]) -> OpenQuestion | None:
    return next((one for one in task.pending if one.key not in asked), None)


async def _ask(store: "TaskStore", task: TaskRecord, asked: set[str]) -> None:
    """Ask the open questions of a task at the terminal, or show them if there is none."""
    from portico.commands.console.task_form import QuestionClosed, answer_at_terminal
    from portico.library.tasks.mcp.task_answers import question_text

    err, current = Screen(sys.stderr), task
    how = f"answer it with `portico tasks answer {task.id}`"
    while (question := _unasked(current, asked)) is not None:
        asked.add(question.key)
        if not can_ask(err):
            err.print(f"{question_text(question.body)}\n  {how}")
            err.stream.flush()
            continue
        try:
            if not await answer_at_terminal(store, current, question):
                err.print(f"the question is still open; {how}", "dim")
        except QuestionClosed as closed:
            err.print(str(closed), "yellow")
        current = await store.get(LOCAL, task.id) or current


@contextmanager
def _on_interrupt() -> Iterator[asyncio.Event]:
    """Set an event on Ctrl-C; the second one ends the command."""
    interrupted = asyncio.Event()
    loop = asyncio.get_running_loop()

    def note() -> None:
        interrupted.set()
        loop.remove_signal_handler(signal.SIGINT)

    loop.add_signal_handler(signal.SIGINT, note)
    try:
        yield interrupted
    finally:
        loop.remove_signal_handler(signal.SIGINT)


async def _may_leave(store: "TaskStore", err: Screen, id: str) -> bool:
    """Ask whether the task continues without us; cancel it otherwise."""
    answer = "y"
    if can_ask(err):
        try:
            answer = await read_line(err, "\nleave the task running? [Y/n] ")
        except InputClosed:
            answer = "y"
    if answer.strip().lower() not in ("n", "no"):
        err.print(f"task {id} continues; follow it with `portico tasks wait {id}`")
        return True
    await store.cancel(LOCAL, id)
    err.print("cancelling the task", "dim")
    return False


def _options(argv: list[str]) -> argparse.Namespace:
    parser = _parser()
    options: argparse.Namespace = parser.parse_intermixed_args(argv)
    options.prompt = " ".join(options.words)
    if options.cwd or not options.resume:  # a task that continues another stays in its folder
        options.cwd = os.path.abspath(options.cwd or os.getcwd())
    if options.prompt == "-":
        options.prompt = sys.stdin.read()
    if not options.prompt.strip():
        parser.error("give a PROMPT, or - to read it from standard input")
    return options


def _parser() -> Parser:
    parser = Parser(
        prog="portico delegate",
        description="Hand a task to another agent of the config, show its progress and its "
        "questions, and print its result. The task continues if this command ends.",
        epilog='example: portico delegate --type review "review the last commit"',
    )
    add = parser.add_argument
    add("words", nargs="*", metavar="PROMPT", help="the whole task; - reads standard input")
    what = "the type of the task (default: one of the named agent, or the only one)"
    add("--type", metavar="TYPE", help=what)
    add("--agent", metavar="ID", help="only this agent")
    what = "the folder to work in (default: this one; with --resume, that of the task)"
    add("--cwd", metavar="DIR", help=what)
    valued(add, "--timeout", seconds, "SECONDS", "how long the agent may take")
    what = "a finished task to continue; the beginning of its id is enough"
    add("--resume", metavar="TASK", help=what)
    parser.add_flag("--background", "print the task's id and return")
    parser.add_flag("--explain", "say which agent would get it and why; run nothing")
    parser.add_config()
    parser.add_json()
    return parser
