"""Components: calls of one in its own process and in ours, and the memory of twenty."""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.contenders import COMPONENT, PORTICO, PYTHON, SERVERS, STDIO_FLOOR, Asked, Contender
from bench.cores import one_core
from bench.gateway import Fleet, GatewayPipe
from bench.pipe import MakeRequest, PipeServer
from bench.process import MB, Workspace
from bench.report import Budget, Section, Table, at_most
from bench.rounds import Samples, interleaved
from bench.scale import Scale
from bench.tables.wrap_drive import ProxyPipe
from bench.workload import ROOT, WrongAnswer, tools

HEADING = "Components"

_FLOOR, _LIBRARY, _BESIDE = STDIO_FLOOR.name, "run, a file", "run, two files"
_WRAP, _COMMAND = "wrap, the file's process", "run, the file's process"
_SERVER, _OWN, _INSIDE = "serve, a server", "serve, a component", "serve, a component in process"
_SERVED = (_SERVER, _OWN, _INSIDE)
_NAME = "calc"
_CALL, _EXECUTE = "call", "execute_tool"
_LAPS = 6
_FLOOR_US, _INSIDE_US = 35, 25
_NOISE = 1.05
"""Two that do the same differ by this much in a run."""
_COUNT, _ADDED_MB = 20, 15
_ALONE = "no component"
_IDLE, _RUNNING, _IN_PROCESS = (
    f"{_COUNT} components, none started",
    f"{_COUNT} components, all running",
    f"{_COUNT} components in process",
)
_RSS = "RSS MB"
_ABOUT = (
    "Driver, component and contender share one core, and take turns; all are restarted in every "
    "round. The component's own process is in no figure.",
    f"All have the same file with 50 tools. `{_LIBRARY}` is the library's own call; "
    f"`{_BESIDE}` has a second component; `{_SERVER}` has the same command under `[servers]`.",
    f"Budgets in microseconds assume a floor of {_FLOOR_US} us a call, and are scaled to the floor "
    "of this run.",
    "Memory: the gateway's process alone, with one server that was called. Each component is a "
    "file with one tool; those that run were called too.",
)
_TOOL = '''\
from portico import Server

server = Server("tool-{number}")


@server.tool
def echo(text: str) -> str:
    """Answer with the text that was sent."""
    return text
'''


def measure(scale: Scale) -> Section:
    """CPU of calls of a component, and memory of many."""
    section, samples = Section(notes=list(_ABOUT)), Samples()
    with Workspace() as workspace:
        fleet = Fleet(workspace, {"upstream": tools(50)})
        try:
            fill(fleet)
            for _ in range(scale.rounds):
                _round(fleet, scale, samples)
            for _ in range(min(scale.rounds, 3)):
                for name, config in memory_configs(workspace.path).items():
                    samples.add(name, _RSS, weighed(fleet, name, config) / MB)
        except WrongAnswer as wrong:
            section.notes.append(f"not measured to the end: {wrong}")
    section.tables += [_call_table(samples), _memory_table(samples)]
    section.budgets += budgets(samples)
    section.notes += [f"noisy: {noise}" for noise in samples.noisy()]
    return section


def fill(fleet: Fleet) -> None:
    """First runs, after which the store knows all tools, and no list changes."""
    fleet.fill()
    for name, config in call_configs(fleet.workspace).items():
        gateway = serving(fleet, name, config, _NAME)
        with gateway.process:
            gateway.open()
            gateway.use("refresh_tools")


@dataclass(frozen=True)
class Row:
    """A contender, and how it is called in each column."""

    name: str
    server: PipeServer
    makes: Mapping[str, MakeRequest]


def _round(fleet: Fleet, scale: Scale, samples: Samples) -> None:
    with ExitStack() as stack:
        running = []
        for row in rows(fleet):
            stack.enter_context(row.server.process)
            opened(row)
            for make in row.makes.values():
                row.server.load(make, scale.calls // 10)  # warm up
            running.append(row)
        for row in interleaved(running, _LAPS):
            for column, make in row.makes.items():
                with one_core(row.server.process.everyone()):
                    load = row.server.load(make, scale.calls // _LAPS)
                samples.add(row.name, column, load.cpu_us)


def rows(fleet: Fleet) -> Iterator[Row]:
    """Each of them as it starts."""
    workspace = fleet.workspace
    floor = PipeServer(STDIO_FLOOR, workspace)
    yield Row(_FLOOR, floor, {_CALL: floor.call_request})
    command = " ".join((*PORTICO, "run", COMPONENT))
    for name, words in (
        (_LIBRARY, ("run", COMPONENT)),
        (_BESIDE, ("run", COMPONENT, f"{SERVERS}/portico_beside.py")),
        (_WRAP, ("wrap", "--env", f"BENCH_TOOLS={workspace.tools(50)}", "--", *command.split())),
        (_COMMAND, ("run", f"env BENCH_TOOLS={workspace.tools(50)} {command}")),
    ):
        contender = Contender(name, (*PORTICO, *words), asked=Asked.LEGACY)
        proxy = ProxyPipe(contender, workspace)
        yield Row(name, proxy, {_CALL: proxy.call_request})
    for name, config in call_configs(workspace).items():
        gateway = serving(fleet, name, config, _NAME)
        makes = {_CALL: gateway.prefixed_request, _EXECUTE: gateway.call_request}
        yield Row(name, gateway, makes)


def serving(fleet: Fleet, name: str, config: Path, called: str) -> GatewayPipe:
    """A gateway with a config of its own, whose calls are of one of its servers or components."""
    # With `search`, its list is that of the meta-tools, and does not change while it starts.
    argv = (*PORTICO, "serve", "--alone", "--expose", "search", "--config", str(config))
    contender = Contender(name, argv, asked=Asked.LEGACY, invokes=_EXECUTE)
    return GatewayPipe(contender, fleet, called)


def opened(row: Row) -> None:
    """Connect, request a list and a call, and check the answers."""
    row.server.open()
    if isinstance(row.server, GatewayPipe):
        row.server.use("refresh_tools")
    elif isinstance(row.server, ProxyPipe) and row.server.changes_lists:
        raise WrongAnswer(f"{row.name}: its list is not the component's")
    row.server.check_call()


def call_configs(workspace: Workspace) -> dict[str, Path]:
    """The same file as a server, and as a component in both ways."""
    file = str(ROOT / COMPONENT)
    env = {"BENCH_TOOLS": str(workspace.tools(50))}
    entries: dict[str, dict[str, Any]] = {
        _SERVER: {
            "command": PYTHON,
            "args": ["-P", "-m", "portico", "run", file],
            "env": env,
        },
        _OWN: {"path": file, "env": env},
        _INSIDE: {"path": file, "in_process": True},
    }
    found = {}
    for name, entry in entries.items():
        kind = "servers" if name == _SERVER else "components"
        found[name] = _written(workspace.path, name, {f"{kind}.{_NAME}": entry})
    return found


def memory_configs(folder: Path) -> dict[str, Path]:
    """The gateway's server without components, and with twenty in each way."""
    server = (folder / "portico.toml").read_text(encoding="utf-8")
    files = [folder / f"tool_{number}.py" for number in range(_COUNT)]
    for number, file in enumerate(files):
        file.write_text(_TOOL.format(number=number), encoding="utf-8")
    own = {f"components.{file.stem}": {"path": str(file)} for file in files}
    inside = {name: {**entry, "in_process": True} for name, entry in own.items()}
    return {
        name: _written(folder, name, entries, server)
        for name, entries in (
            (_ALONE, {}),
            (_IDLE, own),
            (_RUNNING, own),
            (_IN_PROCESS, inside),
        )
    }


def _written(
    folder: Path, name: str, entries: Mapping[str, Mapping[str, Any]], before: str = ""
) -> Path:
    lines = [before]
    for table, entry in entries.items():
        lines += [f"[{table}]", *(f"{key} = {_toml(value)}" for key, value in entry.items()), ""]
    file = folder / f"{name.replace(' ', '-').replace(',', '')}.toml"
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + "}"
    return json.dumps(value)


def weighed(fleet: Fleet, name: str, config: Path) -> int:
    """The bytes of a gateway's own process after its server was called, and its components too
    unless none is to start."""
    gateway = serving(fleet, name, config, "upstream")
    with gateway.process:
        gateway.open()
        gateway.check_call()
        if name in (_RUNNING, _IN_PROCESS):
            for number in range(_COUNT):
                gateway.use(f"tool_{number}__echo", text="x")
        return gateway.own_rss()


def _call_table(samples: Samples) -> Table:
    lines = []
    for name in (_FLOOR, _LIBRARY, _BESIDE, _INSIDE, _WRAP, _COMMAND, _SERVER, _OWN):
        cells = [samples.cell(name, column, "{:,.1f}".format) for column in (_CALL, _EXECUTE)]
        others = [_shown(samples.difference(name, other, _CALL)) for other in (_LIBRARY, _WRAP)]
        lines.append([name, *cells, *others])
    columns = ("", _CALL, _EXECUTE, "added to the library's call", "beside wrap")
    return Table("CPU us of a call over stdio, on one core", columns, lines)


def _shown(us: float | None) -> str:
    return "-" if us is None else f"{us:+,.1f}"


def _memory_table(samples: Samples) -> Table:
    lines = [
        (
            name,
            samples.cell(name, _RSS, "{:.1f}".format),
            "-" if name == _ALONE else _shown(samples.difference(name, _ALONE, _RSS)),
        )
        for name in (_ALONE, _IDLE, _RUNNING, _IN_PROCESS)
    ]
    return Table("Memory of the gateway's own process", ("", _RSS, "added MB"), lines)


def budgets(samples: Samples) -> list[Budget]:
    """The budgets of components, scaled by the floor's speed on this machine."""
    inside = [(_BESIDE, _CALL), (_INSIDE, _CALL), (_INSIDE, _EXECUTE)]
    return [
        *(_added_us(samples, name, column) for name, column in inside),
        _times(samples, _COMMAND, _WRAP, "wrap of its command"),
        _times(samples, _OWN, _SERVER, "the same command as a server"),
        _times(samples, _OWN, _WRAP, "wrap of its command"),
        *(
            at_most(
                f"{name}: what they add to the gateway's own process",
                samples.difference(name, _ALONE, _RSS),
                _ADDED_MB,
                " MB",
            )
            for name in (_IDLE, _RUNNING, _IN_PROCESS)
        ),
    ]


def _added_us(samples: Samples, name: str, column: str) -> Budget:
    mine, library = samples.median(name, column), samples.median(_LIBRARY, _CALL)
    floor = samples.median(_FLOOR, _CALL)
    us = None if mine is None or library is None or floor is None else mine - library
    promise = (
        f"{name}: what {column} adds to the CPU of the library's own call "
        f"({_INSIDE_US} us where the floor takes {_FLOOR_US})"
    )
    return at_most(promise, us, round(_INSIDE_US * (floor or _FLOOR_US) / _FLOOR_US, 2), " us")


def _times(samples: Samples, name: str, other: str, what: str) -> Budget:
    promise = f"{name}: CPU of a call beside {what} (at most the same, within 5 % of noise)"
    return at_most(promise, samples.ratio(name, other, _CALL), _NOISE, "x")
