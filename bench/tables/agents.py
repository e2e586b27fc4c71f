"""Agents: what a delegation costs besides the agent's own work."""

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

from bench import tokens
from bench.contenders import PYTHON
from bench.delegating import Agent, AgentGateway, DelegatingPipe, locked, quick_agent
from bench.process import MB, Workspace
from bench.report import Budget, Section, Table, at_least, at_most, rounded
from bench.rounds import Samples
from bench.scale import Scale
from bench.tables import agents_start
from bench.workload import WrongAnswer, encode

HEADING = "Agents"

_QUICK = "a delegation"
_CPU, _WALL, _COMMITS, _COMMIT = "CPU ms", "wall ms", "commits", "CPU ms of a commit"
_LIMIT_MS, _POOL = 5.0, 8
_TASKS = 100
_MANY = f"{_TASKS} tasks"
_SECONDS, _EACH, _RSS, _DONE = "seconds", "CPU ms each", "RSS MB while all run", "completed"
_AGENTS, _FEW, _FULL = 4, 1, 16
_IDLE, _KB, _LIMIT_KB = "an idle connection", "KB", 300
_TOOLS, _TOKENS, _LIMIT_TOKENS = "a gateway with five agents", "tokens", 1600
_PRESETS = ("qwen", "gemini", "claude", "codex", "opencode")
_COMMIT_ROWS = 200
_ABOUT = (
    "CPU and memory are those of the gateway and its guardian; the agents' own processes are in no "
    "figure. The gateway runs with `--alone`. Its agent answers at once, but for the real one.",
    f"A delegation: {_POOL} calls of `delegate_task`, one at a time, each of which finds a warm "
    "process. The CPU time is that until the gateway is idle again, and so includes the end of "
    "the processes that were used, and the start of those that replace them. Commits are those of "
    "tasks and quotas; the time of one is that of a small row in a database of its own, and the "
    "budget adds it for each of them.",
    f"{_TASKS} tasks: as many calls at once, without warm processes. The agents answer when all of "
    "them have started.",
    f"An idle connection: {_AGENTS} agents with {_FULL} warm processes each, beside the same with "
    f"{_FEW} each.",
    "Tokens: all tools that are listed with `expose = search`, with one agent of each preset.",
)


def measure(scale: Scale) -> Section:
    """CPU, commits, many at once, memory, tokens, and the start of a real agent."""
    section, samples = Section(notes=list(_ABOUT)), Samples()
    try:
        _count_tokens(samples)
        for _ in range(scale.rounds):
            _delegate(samples)
            _count_commits(samples)
            _crowd(samples)
            _weigh(samples)
    except WrongAnswer as wrong:
        section.notes.append(f"not measured to the end: {wrong}")
    section.tables += [
        _table(
            "Portico's share of a delegation", _QUICK, (_CPU, _WALL, _COMMITS, _COMMIT), samples
        ),
        _table("Tasks at once", _MANY, (_SECONDS, _EACH, _RSS, _DONE), samples),
        _table("Memory", _IDLE, (_KB,), samples),
        _table("Tools", _TOOLS, (_TOKENS,), samples),
    ]
    section.budgets += budgets(samples)
    agents_start.measure(scale, section, samples)
    section.notes += [f"noisy: {noise}" for noise in samples.noisy()]
    return section


@contextmanager
def _running(agents: Sequence[Agent], *program: str) -> Iterator[DelegatingPipe]:
    """A gateway with these agents."""
    with Workspace() as workspace:
        gateway = AgentGateway(workspace, "agents", agents).start(*program)
        with gateway.process:
            gateway.open()
            yield gateway


def _delegate(samples: Samples) -> None:
    with _running([_pooled(_POOL)]) as gateway:
        for _ in range(2):  # the first time to warm up
            gateway.until_warm(_POOL)
            before, started = gateway.settled_cpu_s(), time.perf_counter()
            found = [gateway.delegate() for _ in range(_POOL)]
            seconds = time.perf_counter() - started
            cpu_s = gateway.settled_cpu_s() - before
    if not all(one["timings"].get("is_warm") for one in found):
        raise WrongAnswer("a process was not warm")
    samples.add(_QUICK, _CPU, cpu_s / _POOL * 1e3)
    samples.add(_QUICK, _WALL, seconds / _POOL * 1e3)
    samples.add(_QUICK, _COMMIT, _commit_s() * 1e3)


def _count_commits(samples: Samples) -> None:
    with Workspace() as workspace:
        counted = workspace.path / "commits"
        program = (PYTHON, "-m", "bench.servers.portico_counting", str(counted))
        gateway = AgentGateway(workspace, "agents", [_pooled(1)]).start(*program)
        with gateway.process:
            gateway.open()
            gateway.until_warm(1)
            gateway.settled_cpu_s()
            before = counted.stat().st_size if counted.exists() else 0
            gateway.delegate()
            gateway.settled_cpu_s()
            samples.add(_QUICK, _COMMITS, counted.stat().st_size - before)


def _commit_s() -> float:
    """CPU seconds of a commit of one row that is on disk when it returns."""
    with (
        Workspace() as workspace,
        closing(sqlite3.connect(workspace.path / "rows.db", isolation_level=None)) as rows,
    ):
        rows.execute("PRAGMA journal_mode = WAL")
        rows.execute("PRAGMA synchronous = FULL")
        rows.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, text TEXT)")
        before = time.process_time()
        for _ in range(_COMMIT_ROWS):
            rows.execute("BEGIN IMMEDIATE")
            rows.execute("INSERT INTO rows (text) VALUES (?)", ("x" * 200,))
            rows.execute("COMMIT")
        return (time.process_time() - before) / _COMMIT_ROWS


def _crowd(samples: Samples) -> None:
    with Workspace() as workspace:
        lock = workspace.path / "lock"
        lock.touch()
        agent = quick_agent("quick", str(lock), pool={"max": 0})
        gateway = AgentGateway(workspace, "agents", [agent]).start()
        with gateway.process:
            gateway.open()
            gateway.delegate()
            before, started = gateway.settled_cpu_s(), time.perf_counter()
            with locked(lock):
                gateway.begin(_TASKS)
                gateway.until_running(_TASKS)
                samples.add(_MANY, _RSS, gateway.own_rss() / MB)
            gateway.finish()
            samples.add(_MANY, _SECONDS, time.perf_counter() - started)
            samples.add(_MANY, _EACH, (gateway.settled_cpu_s() - before) / _TASKS * 1e3)
            samples.add(_MANY, _DONE, gateway.completed() - 1)


def _weigh(samples: Samples) -> None:
    sizes = {}
    for warm in (_FEW, _FULL):
        with _running([_pooled(warm, f"agent-{number}") for number in range(_AGENTS)]) as gateway:
            gateway.until_warm(_AGENTS * warm)
            gateway.settled_cpu_s()
            sizes[warm] = gateway.own_rss()
    each = (sizes[_FULL] - sizes[_FEW]) / (_AGENTS * (_FULL - _FEW))
    samples.add(_IDLE, _KB, each / 1024)


def _pooled(warm: int, id: str = "quick") -> Agent:
    return quick_agent(id, pool={"min": warm, "max": warm})


def _count_tokens(samples: Samples) -> None:
    if not tokens.TOKENIZER.exists():
        return
    with Workspace() as workspace:
        agents = [{"id": name, "preset": name} for name in _PRESETS]
        gateway = AgentGateway(workspace, "agents", agents).start()
        with gateway.process:
            listed, _ = gateway.offered()
    if not any(tool["name"] == "delegate_task" for tool in listed):
        raise WrongAnswer("no tool delegates")
    (counted,) = tokens.count([encode(listed).decode()])
    samples.add(_TOOLS, _TOKENS, counted)


def _table(title: str, name: str, columns: Sequence[str], samples: Samples) -> Table:
    cells = [samples.cell(name, column, rounded) for column in columns]
    return Table(title, ("", *columns), [[name, *cells]])


def budgets(samples: Samples) -> list[Budget]:
    """The budgets of delegations."""
    count, each = (samples.median(_QUICK, column) for column in (_COMMITS, _COMMIT))
    limit_ms = _LIMIT_MS + (count or 0) * (each or 0)
    cpu, best = (of(_QUICK, _CPU) for of in (samples.median, samples.best))
    promise = f"agents, CPU of a delegation ({_LIMIT_MS:g} ms, and its commits)"
    return [
        at_most(promise, cpu, round(limit_ms, 2), " ms", best),
        at_least("agents, tasks at once that complete", samples.median(_MANY, _DONE), _TASKS, ""),
        at_most(
            "agents, memory of an idle connection", samples.median(_IDLE, _KB), _LIMIT_KB, " KB"
        ),
        at_most("agents, all tools", samples.median(_TOOLS, _TOKENS), _LIMIT_TOKENS, " tokens"),
    ]
