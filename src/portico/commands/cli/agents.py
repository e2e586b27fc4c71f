"""`portico agents`: the configured agents, their quotas, and which one a prompt would get."""

import argparse
import asyncio
import os
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

from portico.commands.console.parser import Parser
from portico.commands.console.render import Screen, first_line
from portico.commands.console.tables import aligned
from portico.core.config.paths import config_file, state_folder
from portico.core.model.errors import PorticoError
from portico.core.model.wording import plain

if TYPE_CHECKING:
    from portico.core.config.agents_schema import AgentEntry, AgentsConfig
    from portico.library.tasks.store.record import TaskRecord

_USAGE = """\
portico agents [--config FILE] [--json]
       portico agents test ID [--config FILE] [--json]
       portico agents explain --type TYPE [--agent ID] [--config FILE] [--json] PROMPT"""
_EXPLAIN, _TEST = "explain", "test"
_HEAD = ("agent", "state", "quota left", "tasks", "tokens", "cost", "accepts")
_UNKNOWN = "?"


def main(argv: list[str]) -> int:
    """List the agents, or explain a choice; return 1 if no agent would get the prompt."""
    options = _options(argv)
    path = options.config or config_file()
    config = configured_agents(path)
    if options.tested is not None:
        return asyncio.run(_test(config, options.tested, options.json))
    if options.prompt is None:
        return _list(path, asyncio.run(_agents(config)), options.json)
    return explain_prompt(config, options)


def explain_prompt(config: "AgentsConfig", options: argparse.Namespace) -> int:
    """Show which agent would get a prompt, and why; nothing is run."""
    return _explain(asyncio.run(_explained(config, options)), options.json)


def configured_agents(path: str) -> "AgentsConfig":
    """Return the agents of a config; raises PorticoError if it has none."""
    from portico.core.config.read import read

    config = read(path).agents
    if config is None or not config.entries:
        from portico.core.config.agent_presets import PRESETS

        table = '[[agents]] with id = "qwen" and preset = "qwen"'
        raise PorticoError(
            f"{path}: no agent is configured; "
            f"add a table such as {table} (presets: {', '.join(PRESETS)}), or one with a command"
        )
    return config


async def _agents(config: "AgentsConfig") -> list[dict[str, Any]]:
    from portico.agents.routing.availability import candidate, to_json
    from portico.agents.routing.quotas import quotas_in_folder

    quotas = quotas_in_folder(state_folder())
    try:
        limits = config.rate_limits
        statuses, totals = await quotas.status(limits), await quotas.totals()
    finally:
        await quotas.close()
    running = await _running()
    return [
        to_json(candidate(entry, statuses[id], running[id]), statuses[id], totals.get(id))
        for id, entry in config.entries.items()
    ]


async def _running() -> Counter[str]:
    """The delegated tasks in progress, by agent."""
    from portico.agents.delegation.stored_delegation import note_in
    from portico.library.tasks.store.store import tasks_in_folder

    store = tasks_in_folder(state_folder())
    try:
        tasks = await store.in_progress()
    finally:
        await store.close()
    delegated = [task for task in tasks if is_delegated(task)]
    return Counter(note_in(task.note).agent_id for task in delegated if task.note)


def is_delegated(task: "TaskRecord") -> bool:
    """True if a task was delegated to an agent."""
    return task.kind.startswith("delegate@")


async def _test(config: "AgentsConfig", id: str, as_json: bool) -> int:
    """Start an agent and open a session; 1 if that fails, with the reason."""
    from portico.agents.routing.routing import unknown_agent
    from portico.commands.console.agent_check import check_agent

    entry = config.entries.get(id)
    if entry is None:
        raise PorticoError(unknown_agent(id, config.entries))
    outcome = await check_agent(entry, os.getcwd())
    screen = Screen(sys.stdout)
    if as_json:
        screen.data(outcome)
        return 0 if outcome["ok"] else 1
    if not outcome["ok"]:
        raise PorticoError(outcome["error"])
    screen.print(_tested(entry, outcome), "green")
    for note in outcome["notes"]:
        screen.print(f"  note: {note}", "dim")
    return 0


def _tested(entry: "AgentEntry", outcome: dict[str, Any]) -> str:
    if not outcome["started"]:
        return (
            f"{entry.id}: found the command {outcome['command']}; "
            f"agents of kind {entry.kind} are not started by this test"
        )
    login = "logged in" if outcome["logged_in"] else "login unknown"
    name = outcome["agent"]
    shown = name if name == entry.id else f"{entry.id}: {name}"
    return f"{shown} is ready, after {outcome['took_s']:g} s; {login}"


async def _explained(config: "AgentsConfig", options: argparse.Namespace) -> dict[str, Any]:
    from portico.agents.routing.availability import candidates
    from portico.agents.routing.quotas import quotas_in_folder
    from portico.agents.routing.routing import RoutingRequest, explain

    quotas = quotas_in_folder(state_folder())
    try:
        found = await candidates(config, quotas, await _running())
    finally:
        await quotas.close()
    request = RoutingRequest(
        task_type=options.type, prompt=options.prompt, agent_id=options.agent or ""
    )
    return explain(request, found, config.rules, config.defaults.strategy)


def _list(path: str, agents: list[dict[str, Any]], as_json: bool) -> int:
    from portico.agents.routing.availability import averages

    screen = Screen(sys.stdout)
    if as_json:
        screen.data(agents)
        return 0
    screen.print(f"agents of {path}", "bold")
    for line in aligned([_HEAD, *map(_row, agents)]):
        screen.print(line)
    for agent in agents:
        if agent["reason"]:
            screen.print(f"  {agent['id']}: {first_line(agent['reason'])}", "yellow")
        for line in averages(agent["totals"]):
            screen.print(f"  {agent['id']}: {line}", "dim")
        if not agent["supervised"]:
            screen.print(f"  {agent['id']}: unsupervised: {agent['unsupervised_because']}")
    return 0


def _row(agent: dict[str, Any]) -> tuple[str, ...]:
    quota = ", ".join(f"{plain(one['left'])} {_short(one['limit'])}" for one in agent["quota"])
    return (
        agent["id"],
        agent["state"],
        quota or "no limits",
        *_used(agent["totals"]),
        ", ".join(agent["capabilities"]),
    )


def _used(totals: dict[str, Any]) -> tuple[str, str, str]:
    """The tasks, tokens and cost of an agent."""
    if not totals["tasks"]:
        return "-", "-", "-"
    tasks = ", ".join(f"{count} {outcome}" for outcome, count in totals["tasks"].items())
    tokens = _UNKNOWN if totals["tokens"] is None else f"{totals['tokens']:,}"
    costs = (totals["cost"] or {}).items()
    cost = ", ".join(f"{amount:.2f} {currency}".strip() for currency, amount in costs)
    return tasks, tokens, cost or _UNKNOWN


def _short(limit: str) -> str:
    """`requests_per_minute` as `requests/min`."""
    return limit.replace("_per_", "/").replace("minute", "min")


def _explain(found: dict[str, Any], as_json: bool) -> int:
    screen = Screen(sys.stdout)
    if as_json:
        screen.data(found)
        return 0 if found["agent"] else 1
    for one in found["rules"]:
        verdict = "matches" if one["matches"] else "does not match"
        preferred = ", ".join(one["preferred_agents"])
        screen.print(f"{one['via']} ({preferred}) {verdict}: {one['reason']}", "dim")
    for one in found["skipped"]:
        screen.print(f"skipped by {one['via']}: {first_line(one['reason'])}", "yellow")
    if not found["agent"]:
        raise PorticoError(found["error"])
    waits = ", which is busy: the task would wait" if found["waits"] else ""
    screen.print(f"{found['agent']}, by {found['via']}: {found['reason']}{waits}", "bold")
    return 0


def _options(argv: list[str]) -> argparse.Namespace:
    """Parse the command line, with the prompt of `explain`, or None for the list."""
    parser = _parser()
    options: argparse.Namespace = parser.parse_intermixed_args(argv)
    action, *words = options.words or [None]
    options.tested = None
    if action == _TEST:
        if len(words) != 1:
            parser.error(f"{_TEST} needs the ID of one agent")
        options.tested, options.prompt = words[0], None
        return options
    if action is None:
        for name in ("type", "agent"):
            if getattr(options, name) is not None:
                parser.error(f"--{name} works only with {_EXPLAIN}")
        options.prompt = None
        return options
    if action != _EXPLAIN:
        parser.error(
            f"there is no action {action[:40]!r}; use {_EXPLAIN} or {_TEST}, or none for the list"
        )
    if not words or not " ".join(words).strip():
        parser.error(f"{_EXPLAIN} needs a PROMPT")
    if not options.type:
        parser.error(f"{_EXPLAIN} needs --type TYPE, the type of the task")
    options.prompt = " ".join(words)
    return options


def _parser() -> Parser:
    parser = Parser(
        prog="portico agents",
        usage=_USAGE,
        description="List the configured agents with their state and quotas, explain which of them "
        "would get a prompt, or test whether one starts and is logged in. Nothing is counted.",
        epilog='example: portico agents explain --type code-generation "implement a parser"',
    )
    add = parser.add_argument
    what = "explain PROMPT: which agent would get it; test ID: does the agent start"
    add("words", nargs="*", metavar="ACTION", help=what)
    add("--type", metavar="TYPE", help="with explain: the type of the task")
    add("--agent", metavar="ID", help="with explain: the agent that the client requires")
    parser.add_config()
    parser.add_json()
    return parser
