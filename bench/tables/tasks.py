"""Tasks: submitted and stored on disk, polled, listed; and plain calls beside them."""

import asyncio
import json
import os
import sqlite3
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import quantiles
from typing import Any

from bench import workload
from bench.contenders import COMPONENT, PORTICO, SERVERS, STDIO_FLOOR, Asked, Contender
from bench.cores import one_core
from bench.pipe import PipeServer
from bench.process import Workspace
from bench.report import Budget, Section, Table, at_least, at_most
from bench.rounds import Samples, interleaved
from bench.scale import Scale
from bench.workload import WrongAnswer, encode

HEADING = "Tasks"

EXTENSION = "io.modelcontextprotocol/tasks"
_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
_FLOOR, _PLAIN, _TASKS = STDIO_FLOOR.name, "run, no tasks", "run, with a task tool"
_COMMIT = "one commit of SQLite, synchronous FULL"
_ALONE = "a task, from call to answer, while no other runs"
_BURST = "the same, each submitted with the answer to the one before"
_CALL = "CPU us a call"
_LAPS, _FLOOR_US, _MORE_US = 6, 35, 3
_FINISHED, _PAGE = 10_000, 100
_ABOUT = (
    "Submitted over stdio by a client that declares tasks: the answer comes after the task is on "
    "disk (write-ahead log, synchronous FULL). The first row is the same disk without Portico. In "
    "the last row a submission also waits for the commits of the task before it, which is running "
    "and finishing meanwhile.",
    "A plain call is one of a client without tasks, of a tool without tasks; driver and server "
    f"share one core. Its budget assumes a floor of {_FLOOR_US} us, and is scaled to this run's.",
)


def measure(scale: Scale) -> Section:
    """Latency of submissions, polls a second, a page of many tasks, and plain calls."""
    section, samples = Section(notes=list(_ABOUT)), Samples()
    with Workspace() as workspace:
        folder = workspace.path / "tasks"
        os.environ["BENCH_TASKS"] = str(folder)
        try:
            commits = commit_times(workspace.path / "floor.db", scale.calls // 10)
            alone, burst, polls = _submitted(workspace, scale.calls // 10)
            _round(workspace, scale, samples)
            page_ms = asyncio.run(page_time(folder / "many", min(_FINISHED, scale.calls * 4)))
        except WrongAnswer as wrong:
            section.notes.append(f"not measured to the end: {wrong}")
            return section
    section.tables += [
        Table(
            "",
            ("", "p50 ms", "p99 ms"),
            [_row(_COMMIT, commits), _row(_ALONE, alone), _row(_BURST, burst)],
        ),
        _call_table(samples),
    ]
    section.notes.append(f"{polls:,.0f} polls of a finished task a second, one after the other.")
    section.budgets += budgets(samples, alone, polls, page_ms)
    section.notes += [f"noisy: {noise}" for noise in samples.noisy()]
    return section


def budgets(
    samples: Samples, submitted: Sequence[float], polls: float, page_ms: float
) -> list[Budget]:
    """The promises, and whether they were kept."""
    p50, p99 = percentiles(submitted)
    more, floor = samples.median(_TASKS, _CALL), samples.median(_FLOOR, _CALL)
    plain = samples.median(_PLAIN, _CALL)
    added = None if more is None or plain is None else more - plain
    limit = _MORE_US * (floor or _FLOOR_US) / _FLOOR_US
    return [
        at_most("from submit to stored and answered, p50", p50, 3, " ms"),
        at_most("from submit to stored and answered, p99", p99, 10, " ms"),
        at_least("polls a second", polls, 1000, ""),
        at_most(f"a page of {_PAGE} of {_FINISHED:,} finished tasks", page_ms, 5, " ms"),
        at_most("a plain call, more than without tasks", added, round(limit, 2), " us"),
    ]


def percentiles(seconds: Sequence[float]) -> tuple[float, float]:
    """The middle and the 99th percentile, in milliseconds."""
    cuts = quantiles(seconds, n=100)
    return cuts[49] * 1000, cuts[98] * 1000


def _row(name: str, seconds: Sequence[float]) -> tuple[str, str, str]:
    p50, p99 = percentiles(seconds)
    return name, f"{p50:.2f}", f"{p99:.2f}"


def commit_times(path: Path, count: int) -> list[float]:
    """The time of each commit of one small row."""
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.execute("CREATE TABLE rows (data BLOB)")
    times = []
    for _ in range(count):
        began = time.perf_counter()
        database.execute("INSERT INTO rows VALUES (?)", (os.urandom(500),))
        times.append(time.perf_counter() - began)
    database.close()
    return times


def server(name: str, words: Sequence[str], workspace: Workspace) -> PipeServer:
    """A server over stdio, in the modern era."""
    return PipeServer(Contender(name, (*PORTICO, "run", *words), asked=Asked.MODERN), workspace)


def request(id: int, method: str, params: dict[str, Any]) -> bytes:
    """A request of a client that declares tasks."""
    meta = json.loads(workload.list_request(1, modern=True))["params"]["_meta"]
    meta = {**meta, _CAPABILITIES: {"extensions": {EXTENSION: {}}}}
    message = {"jsonrpc": "2.0", "id": id, "method": method, "params": {"_meta": meta, **params}}
    return encode(message)


def _call_request(call: dict[str, Any], id: int) -> bytes:
    return request(id, "tools/call", call)


def _submitted(workspace: Workspace, count: int) -> tuple[list[float], list[float], float]:
    """The time of each submission, one at a time and in a row, and how often a second a task can be
    polled."""
    running = server(_TASKS, (f"{SERVERS}/portico_tasks.py",), workspace)
    with running.process:
        alone, burst = [], []
        for _ in range(count):
            took, id = _submit(running)
            alone.append(took)
            while running.ask(partial(_poll, id))["result"]["status"] != "completed":
                pass
        for _ in range(count):
            took, id = _submit(running)
            burst.append(took)
        load = running.load(partial(_poll, id), count * 5)
    return alone, burst, load.requests / load.seconds


def _submit(running: PipeServer) -> tuple[float, str]:
    """Submit a task; the time until its answer, and its id."""
    call = {"name": "work", "arguments": {"text": "x"}}
    began = time.perf_counter()
    answer = running.ask(partial(_call_request, call))
    took = time.perf_counter() - began
    if answer["result"].get("resultType") != "task":
        raise WrongAnswer(f"not a task: {answer}")
    return took, answer["result"]["taskId"]


def _poll(task: str, id: int) -> bytes:
    return request(id, "tasks/get", {"taskId": task})


def _round(workspace: Workspace, scale: Scale, samples: Samples) -> None:
    """Plain calls of both servers and the floor, in turns, several times."""
    for _ in range(scale.rounds):
        rows = {
            _FLOOR: PipeServer(STDIO_FLOOR, workspace),
            _PLAIN: server(_PLAIN, (COMPONENT,), workspace),
            _TASKS: server(_TASKS, (f"{SERVERS}/portico_tasks.py",), workspace),
        }
        try:
            for one in rows.values():
                one.load(one.call_request, scale.calls // 10)  # warm up
            for name in interleaved([*rows], _LAPS):
                one = rows[name]
                with one_core(one.process.everyone()):
                    load = one.load(one.call_request, scale.calls // _LAPS)
                samples.add(name, _CALL, load.cpu_us)
        finally:
            for one in rows.values():
                one.process.stop()


async def page_time(folder: Path, count: int) -> float:
    """The time of a page, in milliseconds, among this many finished tasks; the best of ten."""
    from portico.library.tasks.store.record import COMPLETED, TaskLimits
    from portico.library.tasks.store.store import tasks_in_folder

    store = tasks_in_folder(str(folder), TaskLimits(in_progress=count + 1, kept=count + 1))

    async def finished() -> None:
        task = await store.adopt("local", "tool", b"{}", "bench")
        assert task.lease is not None
        await store.finish(task.lease, COMPLETED, b"{}")

    for _ in range(0, count, _PAGE):
        await asyncio.gather(*(finished() for _ in range(_PAGE)))
    times = []
    for _ in range(10):
        began = time.perf_counter()
        page = await store.page("local", _PAGE)
        times.append(time.perf_counter() - began)
        if page is None or len(page.tasks) != _PAGE:
            raise WrongAnswer("a page of tasks is not complete")
    await store.close()
    return min(times) * 1000


def _call_table(samples: Samples) -> Table:
    rows = []
    for name in (_FLOOR, _PLAIN, _TASKS):
        cost, ratio = samples.median(name, _CALL), samples.ratio(name, _FLOOR, _CALL)
        shown = "-" if cost is None else f"{cost:.1f}"
        rows.append((name, shown, "-" if ratio is None else f"{ratio:.2f}x"))
    return Table("A plain call", ("", _CALL, "beside the floor"), rows)
