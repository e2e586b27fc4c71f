"""stdio: from the spawn to the first list, then lists and calls."""

from bench.contenders import STDIO, STDIO_FLOOR, STDIO_PORTICO, STDIO_SCRIPT, Contender
from bench.pipe import PipeServer
from bench.process import Workspace
from bench.report import Budget, Section, Table, at_most
from bench.rounds import Samples, interleaved
from bench.scale import Scale
from bench.workload import WrongAnswer

HEADING = "stdio server, no upstream"

_WALL, _CPU = "spawn to list ms", "start CPU ms"
_LIST, _CALL, _RATE = "cached list CPU us", "echo call CPU us", "calls/s, 32 in flight"
_COLUMNS = (_WALL, _CPU, _LIST, _CALL, _RATE)
_IN_FLIGHT = 32


def measure(scale: Scale) -> Section:
    """Start and cost of every contender with 50 tools."""
    section, samples = Section(), Samples()
    with Workspace() as workspace:
        contenders = _able(workspace, section.notes)
        for contender in interleaved(contenders, scale.start_rounds):
            _start(contender, workspace, samples)
        _work(contenders, workspace, scale, samples)
    section.tables.append(_table(samples))
    section.budgets += _budgets(samples)
    section.notes += [f"noisy: {noise}" for noise in samples.noisy()]
    return section


def _able(workspace: Workspace, notes: list[str]) -> list[Contender]:
    """Those that answer right; this first start also fills every cache of the disk."""
    able = []
    for contender in STDIO:
        if (missing := contender.missing()) is not None:
            notes.append(missing)
            continue
        server = PipeServer(contender, workspace)
        with server.process:
            try:
                server.open()
            except WrongAnswer as wrong:
                notes.append(f"{contender.name} left out: {wrong}")
            else:
                able.append(contender)
    return able


def _start(contender: Contender, workspace: Workspace, samples: Samples) -> None:
    server = PipeServer(contender, workspace)
    with server.process:
        started = server.open()
    samples.add(contender.name, _WALL, started.wall_s * 1e3)
    samples.add(contender.name, _CPU, started.cpu_s * 1e3)


def _work(
    contenders: list[Contender], workspace: Workspace, scale: Scale, samples: Samples
) -> None:
    servers = [(contender.name, PipeServer(contender, workspace)) for contender in contenders]
    try:
        for _, server in servers:
            server.open()
            server.load(server.list_request, scale.lists // 10)
            server.load(server.call_request, scale.calls // 10)
        for name, server in interleaved(servers, scale.rounds):
            lists = server.load(server.list_request, scale.lists)
            calls = server.load(server.call_request, scale.calls)
            many = server.load(server.call_request, scale.calls, _IN_FLIGHT)
            samples.add(name, _LIST, lists.cpu_us)
            samples.add(name, _CALL, calls.cpu_us)
            samples.add(name, _RATE, many.requests / many.seconds)
    finally:
        for _, server in servers:
            server.process.stop()


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


def _budgets(samples: Samples) -> list[Budget]:
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
    cached = samples.median(STDIO_PORTICO.name, _LIST)
    return [at_most("stdio, cached list of 50: CPU", cached, 60, " us"), *starts]
