"""Proxies over stdio: start, memory, lists, calls, and a large result."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from bench.contenders import (
    PROXIES,
    PROXY_FASTMCP,
    PROXY_FLOOR,
    PROXY_MCP_PROXY,
    UPSTREAM_STDIO,
    WRAP,
    Contender,
)
from bench.cores import one_core, price_of_waking
from bench.process import MB, Workspace
from bench.report import Budget, Section, Table, at_most
from bench.rounds import Samples, interleaved
from bench.scale import Scale
from bench.tables.wrap_drive import ProxyPipe, note, present, upstream_url
from bench.workload import WrongAnswer

_WALL, _START = "spawn to list ms", "start CPU ms"
_IDLE, _RUNNING = "RSS MB, list only", "RSS MB, after a call"
_LIST, _CALL = "list CPU us", "call CPU us"
_LIST_ONE, _CALL_ONE = "list, one core", "call, one core"
_RATE = "calls/s, 32 in flight"
_WORK = (_LIST, _LIST_ONE, _CALL, _CALL_ONE, _RATE)
_P50, _P99 = "p50 us", "p99 us"
_BIG_MS, _BIG_CPU = "10 MB ms", "10 MB CPU ms"
_ADDED = {_P50: "added p50 us", _P99: "added p99 us"}
_IN_FLIGHT = 32
_MEMORY_ROUNDS = 3
_SETTLE_S = 0.2
"""The pause before idle memory is measured: a proxy may still work after its answer."""
_PEERS = {PROXY_FASTMCP.name: 10, PROXY_MCP_PROXY.name: 4}


def measure(scale: Scale, section: Section) -> None:
    """Start and cost of every proxy with 50 tools."""
    samples = Samples()
    with Workspace() as workspace, Workspace() as fresh, ExitStack() as stack:
        url = stack.enter_context(upstream_url(workspace))
        bench = _Bench(scale, samples, section.notes, workspace, fresh)
        servers = []
        for contender in present(PROXIES, section.notes, url):
            with bench.noting(contender.name):
                server = bench.start(contender)
                stack.enter_context(server.process)
                bench.look_first(server)
                servers.append(server)
        for number in range(scale.start_rounds):
            for server in reversed(servers) if number % 2 else servers:
                bench.restart(server.contender, memory=number < _MEMORY_ROUNDS)
        warm = [server for server in servers if not server.contender.cold]
        for server in interleaved(warm, scale.rounds):
            bench.work(server)
        for server in interleaved(warm, min(scale.rounds, 3)):
            bench.large(server)
    section.tables += [_start_table(samples), _work_table(samples), _peers_table(samples)]
    section.budgets += _budgets(samples)
    section.notes.append(price_of_waking(scale.calls))
    section.notes += [f"noisy: {noise}" for noise in samples.noisy()]


class _Bench:
    def __init__(
        self,
        scale: Scale,
        samples: Samples,
        notes: list[str],
        workspace: Workspace,
        fresh: Workspace,
    ) -> None:
        self._scale, self._samples, self._notes = scale, samples, notes
        self._workspace, self._fresh = workspace, fresh
        self._patience_s = 0.5 if scale.rounds == 1 else 2.0
        """Slow contenders get fewer requests."""
        self._failed: set[str] = set()

    def start(self, contender: Contender) -> ProxyPipe:
        return ProxyPipe(contender, self._fresh if contender.cold else self._workspace)

    def look_first(self, server: ProxyPipe) -> None:
        """Whether it answers right; this run also fills what is stored for the next."""
        server.open()
        server.check_call()
        if server.changes_lists:
            self._notes.append(f"{server.contender.name}: its list is not the upstream's")

    def restart(self, contender: Contender, *, memory: bool) -> None:
        if contender.name in self._failed:
            return
        with self.noting(contender.name), (another := self.start(contender)).process:
            started = another.open()
            self._samples.add(contender.name, _WALL, started.wall_s * 1e3)
            self._samples.add(contender.name, _START, started.cpu_s * 1e3)
            if memory:
                self._weigh(another)

    def _weigh(self, server: ProxyPipe) -> None:
        name = server.contender.name
        time.sleep(_SETTLE_S)
        if name == WRAP.name and server.process.upstreams():
            note(self._notes, f"{name}: its child runs before the first call")
        self._samples.add(name, _IDLE, server.process.memory().rss / MB)
        server.check_call()
        time.sleep(_SETTLE_S)
        self._samples.add(name, _RUNNING, server.process.memory().rss / MB)

    def work(self, server: ProxyPipe) -> None:
        name, scale, add = server.contender.name, self._scale, self._samples.add
        if name in self._failed:
            return
        with self.noting(name):
            lists = server.affordable(server.list_request, scale.lists, self._patience_s)
            add(name, _LIST, server.timed(server.list_request, lists).cpu_us)
            calls = server.affordable(server.call_request, scale.calls, self._patience_s)
            timed = server.timed(server.call_request, calls)
            add(name, _CALL, timed.cpu_us)
            add(name, _P50, timed.p50_us)
            add(name, _P99, timed.p99_us)
            with one_core(server.process.everyone()):
                add(name, _LIST_ONE, server.timed(server.list_request, lists).cpu_us)
                add(name, _CALL_ONE, server.timed(server.call_request, calls).cpu_us)
            many = server.load(server.call_request, max(calls, 2 * _IN_FLIGHT), _IN_FLIGHT)
            add(name, _RATE, many.requests / many.seconds)

    def large(self, server: ProxyPipe) -> None:
        name = server.contender.name
        if name in self._failed:
            return
        with self.noting(name):
            seconds, cpu_s = server.big()
            self._samples.add(name, _BIG_MS, seconds * 1e3)
            self._samples.add(name, _BIG_CPU, cpu_s * 1e3)

    @contextmanager
    def noting(self, name: str) -> Iterator[None]:
        """A failure becomes a note, and its contender is not measured again."""
        try:
            yield
        except WrongAnswer as wrong:
            note(self._notes, f"{name} over stdio: {wrong}")
            self._failed.add(name)


def _start_table(samples: Samples) -> Table:
    rows = []
    for contender in PROXIES:
        name = contender.name
        ratio = samples.ratio(name, PROXY_FLOOR.name, _WALL)
        rows.append(
            [
                name,
                samples.cell(name, _START),
                samples.cell(name, _WALL),
                "-" if ratio is None else f"{ratio:.2f}",
                samples.cell(name, _IDLE, "{:.1f}".format),
                samples.cell(name, _RUNNING, "{:.1f}".format),
            ]
        )
    columns = ("", _START, _WALL, "x floor", _IDLE, _RUNNING)
    return Table("stdio to an upstream of 50 tools: start and memory", columns, rows)


def _work_table(samples: Samples) -> Table:
    rows = []
    for contender in PROXIES:
        if contender.cold:
            continue  # once it has started it is like any other
        name = contender.name
        cells = [samples.cell(name, column) for column in _WORK]
        added = [_added(samples, name, column) for column in _ADDED]
        large = [samples.cell(name, column) for column in (_BIG_MS, _BIG_CPU)]
        rows.append([name, *cells, *added, *large])
    columns = ("", *_WORK, *_ADDED.values(), _BIG_MS, _BIG_CPU)
    return Table("stdio to an upstream of 50 tools: lists, calls, a large result", columns, rows)


def _added(samples: Samples, name: str, column: str) -> str:
    mine, direct = samples.median(name, column), samples.median(UPSTREAM_STDIO.name, column)
    if mine is None or direct is None or name == UPSTREAM_STDIO.name:
        return "-" if mine is None else f"({mine:,.0f})"
    return f"{mine - direct:,.0f}"


def _peers_table(samples: Samples) -> Table:
    rows = []
    for name, aim in _PEERS.items():
        ratio = samples.ratio(name, WRAP.name, _WALL)
        rows.append((name, f">= {aim}x", "-" if ratio is None else f"{ratio:.1f}x"))
    return Table("Spawn to list beside Portico's, for information", ("", "aim", "measured"), rows)


def _budgets(samples: Samples) -> list[Budget]:
    def own(column: str, promise: str, limit: float, unit: str) -> Budget:
        figure, best = (f(WRAP.name, column) for f in (samples.median, samples.best))
        return at_most(promise, figure, limit, unit, best)

    start = samples.ratio(WRAP.name, PROXY_FLOOR.name, _WALL)
    return [
        at_most("wrap, stored catalog: spawn to list beside asyncio + msgspec", start, 1.6, "x"),
        own(_IDLE, "wrap, idle RSS before a child runs", 30, " MB"),
        own(_RUNNING, "wrap, RSS with a child, guardian included", 40, " MB"),
        own(_LIST, "wrap, cached list over stdio: CPU", 60, " us"),
        own(_LIST_ONE, "wrap, cached list over stdio: CPU, on one core", 60, " us"),
        own(_CALL, "wrap, call from stdio to stdio: CPU", 150, " us"),
        own(_CALL_ONE, "wrap, call from stdio to stdio: CPU, on one core", 150, " us"),
    ]
