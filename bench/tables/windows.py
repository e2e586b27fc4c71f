"""Windows: the cost of running the gateway in its own process."""

import time

from bench.cores import one_core
from bench.gateway import Fleet, GatewayPipe
from bench.process import MB, Workspace
from bench.report import Budget, Section, Table, at_most
from bench.rounds import Samples, interleaved
from bench.scale import Scale
from bench.workload import WrongAnswer, tools

HEADING = "Windows"

_ALONE, _WINDOW = "serve --alone", "serve, a window and the owner"
_ROWS = (_ALONE, _WINDOW)
_WALL, _CALL, _MEMORY = "spawn to list ms", "call CPU us", "PSS MB"
_COLUMNS = (_WALL, _CALL, _MEMORY)
_ABOUT = (
    "A window starts the owner of the gateway and is a bridge to it. With `--alone` the gateway is "
    "in the window's own process. Both start with a stored catalog. The memory of both includes "
    "the server's process.",
)
_GONE_S = 10.0


def measure(scale: Scale) -> Section:
    """Start, calls and memory of both."""
    section, samples = Section(notes=list(_ABOUT)), Samples()
    with Workspace() as workspace:
        fleet = Fleet(workspace, {"upstream": tools(50)})
        try:
            fleet.fill()
            for name in interleaved(_ROWS, scale.start_rounds):
                with one_core(()):
                    _start(fleet, name, samples)
            for name in interleaved(_ROWS, scale.rounds):
                _work(fleet, name, scale, samples)
        except WrongAnswer as wrong:
            section.notes.append(f"not measured to the end: {wrong}")
    rows = [[name, *(samples.cell(name, column) for column in _COLUMNS)] for name in _ROWS]
    section.tables.append(Table("A window, on one core", ("", *_COLUMNS), rows))
    section.budgets += budgets(samples)
    section.notes += [f"noisy: {noise}" for noise in samples.noisy()]
    return section


def _server(fleet: Fleet, name: str) -> GatewayPipe:
    return GatewayPipe(fleet.contender(name) if name == _ALONE else fleet.window(name), fleet)


def _start(fleet: Fleet, name: str, samples: Samples) -> None:
    server = _server(fleet, name)
    with server.process:
        samples.add(name, _WALL, server.open().wall_s * 1e3)
    _until_gone(fleet)


def _work(fleet: Fleet, name: str, scale: Scale, samples: Samples) -> None:
    server = _server(fleet, name)
    with server.process:
        server.open()
        server.use("refresh_tools")
        server.check_call()
        server.load(server.call_request, scale.calls // 10)  # warm up
        with one_core(server.process.everyone()):
            samples.add(name, _CALL, server.load(server.call_request, scale.calls // 3).cpu_us)
        samples.add(name, _MEMORY, server.process.memory().pss / MB)
    _until_gone(fleet)


def _until_gone(fleet: Fleet) -> None:
    """An owner stays a moment after its last window."""
    until = time.monotonic() + _GONE_S
    control = fleet.workspace.home / "state" / "control"
    while list(control.glob("*.sock")) and time.monotonic() < until:
        time.sleep(0.05)


def budgets(samples: Samples) -> list[Budget]:
    """The budget of a window beside a gateway in its own process."""
    return [
        at_most(
            "windows, spawn to first list beside --alone",
            samples.ratio(_WINDOW, _ALONE, _WALL),
            1.7,
            "x",
        ),
        at_most(
            "windows, what a call costs more than with --alone, on one core",
            samples.difference(_WINDOW, _ALONE, _CALL),
            90,
            " us",
        ),
        at_most(
            "windows, memory more than with --alone",
            samples.difference(_WINDOW, _ALONE, _MEMORY),
            25,
            " MB",
        ),
    ]
