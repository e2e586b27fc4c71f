"""WebAssembly components: calls, memory and start, beside the same tool in Python."""

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from bench.process import MB
from bench.report import Budget, Section, Table, at_most, rounded
from bench.scale import Scale
from portico.edge.client.client import Client
from portico.edge.client.connect import connect
from portico.upstream.wires.child_wire import ChildWire, Command
from tests.library.wasm import building
from tests.library.wasm.hosting import OWN, command, own_guest, settings
from tests.library.wasm.wat_guests import SLEEPER, written

HEADING = "WebAssembly components"

_JS, _SMALL, _PYTHON = "JavaScript (QuickJS)", "hand-written", "Python (componentize-py)"
_FILE, _SHARED = "the same tool as a Python file", "JavaScript, a shared instance"
_SERVER = "the same tool as a server on the Python SDK"
_LINKED = "the Python file behind {} WebAssembly middleware"
_LINKS = (1, 3)
_ADD: tuple[str, dict[str, Any]] = ("add", {"a": 1, "b": 2})
_CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    _JS: _ADD,
    _SHARED: _ADD,
    _SMALL: _ADD,
    _PYTHON: ("reverse", {"text": "hello"}),
    _FILE: _ADD,
    _SERVER: _ADD,
    **{_LINKED.format(count): _ADD for count in _LINKS},
}
_PARALLEL = 8
_IDLE_S = 2.0
_TOOL = '''
from portico import Server

server = Server("calc")


@server.tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b
'''
_SDK_TOOL = '''
from mcp.server.mcpserver import MCPServer

server = MCPServer("calc", log_level="WARNING")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


server.run()
'''
_ABOUT = (
    "One client over a pipe, one call after the other, in this process: its own time is in every "
    "figure, and the same in each row. Each call of a component has a fresh instance, except in "
    "the shared one.",
    "The hand-written component is as large as one in Rust is after its runtime: it only adds.",
    "The start is that of the process until its first answer, with compiled code on disk.",
    "The middleware is JavaScript that passes each request on. Its memory is not in the row, which "
    "has that of `portico run`.",
    f"In parallel: {_PARALLEL} workers of JavaScript components, each called by a client of its "
    "own.",
)


def measure(scale: Scale) -> Section:
    """Latency, memory and start of components."""
    section = Section(notes=list(_ABOUT))
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(_measured(Path(folder), scale))
    rows = [
        (name, *(rounded(found[name, column]) for column in ("ms", "best", "MB", "start")))
        for name in _CALLS
    ]
    columns = ("component", "call, median ms", "best ms", "idle RSS MB", "start ms")
    section.tables.append(Table("", columns, rows))
    each = rounded(found["parallel", "ms"])
    section.notes.append(f"{_PARALLEL} components in parallel: {each} ms a call.")
    most = _LINKS[-1]
    added = (found[_LINKED.format(most), "best"] - found[_FILE, "best"]) / most
    section.notes.append(f"Each WebAssembly middleware adds {rounded(added)} ms to the best call.")
    section.budgets += budgets(found)
    return section


def budgets(found: dict[tuple[str, str], float]) -> list[Budget]:
    """The promises about components."""
    return [
        at_most("a warm call of a JavaScript tool", found[_JS, "ms"], 3, " ms"),
        at_most("a warm call of a hand-written tool", found[_SMALL, "ms"], 1, " ms"),
        at_most("an idle JavaScript component", found[_JS, "MB"], 45, " MB"),
        at_most("an idle Python component", found[_PYTHON, "MB"], 60, " MB"),
    ]


def _commands(folder: Path) -> dict[str, Command]:
    file = folder / "calc.py"
    file.write_text(_TOOL)
    server = folder / "server.py"
    server.write_text(_SDK_TOOL)
    middleware = building.javascript("noop.js", OWN, "noop")
    small = written(SLEEPER, folder)
    python = building.python("own.py", OWN, "everything")
    run = (sys.executable, "-P", "-m", "portico", "run")
    environment = {"PORTICO_HOME": str(folder / "home")}
    linked = {
        _LINKED.format(count): (*run, *(f"link{n}={middleware}" for n in range(count)), str(file))
        for count in _LINKS
    }
    return {
        _JS: command(settings(own_guest(), folder)),
        _SHARED: command(settings(own_guest(), folder, instance="shared")),
        _SMALL: command(settings(small, folder)),
        _PYTHON: command(settings(python, folder)),
        _FILE: Command((*run, str(file)), environment=environment),
        _SERVER: Command((sys.executable, str(server)), environment={}),
        **{name: Command(argv, environment=environment) for name, argv in linked.items()},
    }


@asynccontextmanager
async def _connected(address: Command) -> AsyncGenerator[Client, None]:
    async with await connect(address, era="modern") as client:
        yield client


async def _measured(folder: Path, scale: Scale) -> dict[tuple[str, str], float]:
    found: dict[tuple[str, str], float] = {}
    commands = _commands(folder)
    for name, address in commands.items():
        tool, arguments = _CALLS[name]
        async with _connected(address) as client:  # compiles it
            await client.call_tool(tool, arguments)
        starts = []
        for _ in range(scale.start_rounds):
            began = time.perf_counter()
            async with _connected(address) as client:
                await client.call_tool(tool, arguments)
                starts.append(time.perf_counter() - began)
        async with _connected(address) as client:
            times = await _timed(client, tool, arguments, scale.calls)
            await asyncio.sleep(_IDLE_S)
            found[name, "MB"] = _resident(client) / MB
        found[name, "ms"] = statistics.median(times) * 1000
        found[name, "best"] = min(times) * 1000
        found[name, "start"] = statistics.median(starts) * 1000
    found["parallel", "ms"] = await _parallel(commands[_JS], scale.calls)
    return found


async def _timed(client: Client, tool: str, arguments: dict[str, Any], calls: int) -> list[float]:
    times = []
    for _ in range(max(calls // 3, 50)):
        began = time.perf_counter()
        result = await client.call_tool(tool, arguments)
        times.append(time.perf_counter() - began)
        assert not result.get("isError"), result
    return times


async def _parallel(address: Command, calls: int) -> float:
    async with AsyncExitStack() as stack:
        clients: Sequence[Client] = [
            await stack.enter_async_context(_connected(address)) for _ in range(_PARALLEL)
        ]
        began = time.perf_counter()
        times = await asyncio.gather(*(_timed(one, *_ADD, calls) for one in clients))
        took = time.perf_counter() - began
    return took / sum(map(len, times)) * 1000


def _resident(client: Client) -> int:
    wire = client.exchange.wire
    assert isinstance(wire, ChildWire)
    assert wire.process is not None
    pages = Path(f"/proc/{wire.process.pid}/statm").read_text().split()[1]
    return int(pages) * 4096
