"""stdio: from the spawn to the first list, then lists and calls."""

from contextlib import ExitStack

from bench.contenders import STDIO, STDIO_FLOOR, STDIO_PORTICO, STDIO_SCRIPT, STDIO_TYPESCRIPT
from bench.cores import one_core, price_of_reading, price_of_waking
from bench.pipe import PipeServer
from bench.process import Workspace
from bench.report import Budget, Section, Table, at_most
from bench.rounds import Samples, interleaved
from bench.scale import Scale
from bench.workload import WrongAnswer

HEADING = "stdio server, no upstream"

_WALL, _CPU = "spawn to list ms", "start CPU ms"
_LIST, _LIST_ONE, _MANY = "cached list CPU us", "on one core", "8 in flight"
_CALL, _RATE = "echo call CPU us", "calls/s, 32 in flight"
_CALL_ONE, _CALLS_ONE = "call, one core", "32 in flight, one core"
_COLUMNS = (_WALL, _CPU, _LIST, _LIST_ONE, _MANY, _CALL, _CALL_ONE, _CALLS_ONE, _RATE)
_LISTS_IN_FLIGHT = 8
"""As many as over HTTP, to tell the cost of the work from that of being woken for it."""
_IN_FLIGHT = 32


def measure(scale: Scale) -> Section:
    """Start and cost of every contender with 50 tools."""
    section, samples, faults = Section(), Samples(), Samples()
    with Workspace() as workspace, ExitStack() as stack:
        servers = _start(workspace, stack, section.notes)
        for name, server in interleaved(servers, scale.start_rounds):
            _restart(name, server, workspace, samples)
        for _, server in servers:
            server.load(server.list_request, scale.lists // 10)  # warm up
            server.load(server.call_request, scale.calls // 10)
        for name, server in interleaved(servers, scale.rounds):
            _work(name, server, scale, samples, faults)
    section.tables.append(_table(samples))
    section.budgets += budgets(samples)
    section.notes.append(price_of_waking(scale.calls))
    section.notes.append(price_of_reading(faults.median(STDIO_FLOOR.name, _CALL_ONE)))
    section.notes += [f"noisy: {noise}" for noise in samples.noisy()]
    return section


def _start(
    workspace: Workspace, stack: ExitStack, notes: list[str]
) -> list[tuple[str, PipeServer]]:
    """The contenders that answer correctly; the others become notes. Also warms the disk cache."""
    servers = []
    for contender in STDIO:
        if (missing := contender.missing()) is not None:
            notes.append(missing)
            continue
        server = PipeServer(contender, workspace)
        stack.enter_context(server.process)
        try:
            server.open()
            server.check_call()
        except WrongAnswer as wrong:
            notes.append(f"{contender.name} left out: {wrong}")
        else:
            servers.append((contender.name, server))
    return servers


def _restart(name: str, server: PipeServer, workspace: Workspace, samples: Samples) -> None:
    another = PipeServer(server.contender, workspace)
    with another.process:
        started = another.open()
    samples.add(name, _WALL, started.wall_s * 1e3)
    samples.add(name, _CPU, started.cpu_s * 1e3)


def _work(name: str, server: PipeServer, scale: Scale, samples: Samples, faults: Samples) -> None:
    samples.add(name, _LIST, server.load(server.list_request, scale.lists).cpu_us)
    with one_core(server.process.everyone()):
        samples.add(name, _LIST_ONE, server.load(server.list_request, scale.lists).cpu_us)
    lists = server.load(server.list_request, scale.lists, _LISTS_IN_FLIGHT)
    samples.add(name, _MANY, lists.cpu_us)
    samples.add(name, _CALL, server.load(server.call_request, scale.calls).cpu_us)
    with one_core(server.process.everyone()):
        calls = scale.calls // 3
        one = server.load(server.call_request, calls)
        samples.add(name, _CALL_ONE, one.cpu_us)
        faults.add(name, _CALL_ONE, one.faults)
        many = server.load(server.call_request, calls, _IN_FLIGHT)
        samples.add(name, _CALLS_ONE, many.cpu_us)
    many = server.load(server.call_request, scale.calls, _IN_FLIGHT)
    samples.add(name, _RATE, many.requests / many.seconds)


def _table(samples: Samples) -> Table:
    rows = []
    for contender in STDIO:
        name = contender.name
        beside = [samples.ratio(name, STDIO_FLOOR.name, column) for column in (_WALL, _CPU)]
        wall, cpu = ("-" if ratio is None else f"{ratio:.2f}" for ratio in beside)
        cells = [samples.cell(name, column) for column in _COLUMNS]
        rows.append([name, cells[0], wall, cells[1], cpu, *cells[2:]])
    columns = ("", _WALL, "x floor", _CPU, "x floor", *_COLUMNS[2:])
    return Table("Start and CPU, 50 tools", columns, rows)


def budgets(samples: Samples) -> list[Budget]:
    """The budgets of lists, calls and the start."""
    starts = [
        at_most(
            f"stdio, {contender.name}: {what} beside asyncio + msgspec",
            samples.ratio(contender.name, STDIO_FLOOR.name, column),
            1.6,
            "x",
        )
        for contender in (STDIO_PORTICO, STDIO_SCRIPT)
        for what, column in (("spawn to list", _WALL), ("start CPU", _CPU))
    ]
    lists = []
    for column, where in ((_LIST, ""), (_LIST_ONE, ", on one core")):
        cached, best = (f(STDIO_PORTICO.name, column) for f in (samples.median, samples.best))
        lists.append(at_most(f"stdio, cached list of 50: CPU{where}", cached, 60, " us", best))
    calls = at_most(
        "stdio, echo call, 32 in flight: CPU beside the TypeScript SDK, on one core",
        samples.ratio(STDIO_PORTICO.name, STDIO_TYPESCRIPT.name, _CALLS_ONE),
        1.0,
        "x",
    )
    return [*lists, calls, *starts]
