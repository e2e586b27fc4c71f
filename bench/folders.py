"""`python -m bench.folders`: five windows over 20 servers, in one folder and in five.

Processes, starts and memory, before and after each window has called every server. The servers are
small Python programs; `folder = "any"` is what an entry says whose folder does not matter.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from bench import machine, report
from bench.contenders import PYTHON, UPSTREAM
from bench.process import MB, Workspace, memory_of, tree_of
from bench.report import Section, Table
from bench.workload import INITIALIZED, ROOT, encode, initialize_request

HEADING = "Folders of windows"
PART = "folders"
_SERVER = str(ROOT / UPSTREAM[1])
_WINDOWS, _SERVERS, _RUNS = 5, 20, 3
_TOOLS = 10
_SETTLE_S = 30.0
_GONE_S = 20.0
_COLUMNS = (
    "",
    "first window ms",
    "further window ms",
    "first call ms",
    "processes of servers",
    "after all calls",
    "PSS MB",
    "after all calls PSS MB",
)


@dataclass
class Way:
    """How the windows are placed, and what was measured."""

    name: str
    folders: int
    keys: str = ""
    figures: dict[str, list[float]] = field(default_factory=dict)

    def add(self, column: str, figure: float) -> None:
        """Keep the figure of one run, or of one window in it."""
        self.figures.setdefault(column, []).append(figure)


class _Window:
    """One window, as the simplest client has it."""

    def __init__(self, workspace: Workspace, config: Path, folder: Path) -> None:
        argv = (PYTHON, "-m", "portico", "serve", "--expose", "all", "--config", str(config))
        self._process = subprocess.Popen(
            argv,
            cwd=folder,
            env=workspace.environment(1),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._id = 0

    def open(self) -> None:
        """Shake hands, and read all tools."""
        self._exchange(initialize_request(0), 0)
        self._send(INITIALIZED)
        while len(self._tools()) < _SERVERS * _TOOLS:
            time.sleep(0.05)  # only before the lists are stored

    def _tools(self) -> list[Any]:
        found: list[Any] = []
        cursor: dict[str, str] = {}
        while True:
            page = self.request("tools/list", cursor)
            found += page["tools"]
            if not page.get("nextCursor"):
                return found
            cursor = {"cursor": page["nextCursor"]}

    def request(self, method: str, params: Any = None) -> Any:
        """The result of one request."""
        self._id += 1
        message = {"jsonrpc": "2.0", "id": self._id, "method": method, "params": params or {}}
        return self._exchange(encode(message), self._id)["result"]

    def call(self, server: int) -> None:
        """Call the echo of a server."""
        params = {"name": f"s{server}__echo", "arguments": {"text": "hello"}}
        assert not self.request("tools/call", params).get("isError")

    def close(self) -> None:
        """Leave as a client does."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(_GONE_S)

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def _exchange(self, message: bytes, id: int) -> Any:
        self._send(message)
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            answer = json.loads(line)
            if answer.get("id") == id and "method" not in answer:
                return answer
        raise RuntimeError("the window ended")

    def _send(self, message: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(message + b"\n")
        self._process.stdin.flush()


def _configured(workspace: Workspace, way: Way) -> Path:
    config = workspace.path / "portico.toml"
    file = workspace.tools(_TOOLS)
    arguments = json.dumps([_SERVER, str(file)])
    entry = f"command = {json.dumps(PYTHON)}\nargs = {arguments}\n{way.keys}\n"
    config.write_text("\n".join(f"[servers.s{number}]\n{entry}" for number in range(_SERVERS)))
    return config


def _owners(workspace: Workspace) -> list[int]:
    control = workspace.home / "state" / "control"
    found = [int(path.stem) for path in control.glob("*.sock")]
    return [pid for pid in found if Path(f"/proc/{pid}").exists()]


def _servers(workspace: Workspace) -> int:
    """How many processes of servers there are."""
    found = 0
    for pid in tree_of(_owners(workspace)):
        try:
            found += _SERVER.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
    return found


def _settled(workspace: Workspace) -> int:
    """The number of processes, once the first window's refresh has started all of them."""
    until = time.monotonic() + _SETTLE_S
    while _servers(workspace) < _SERVERS and time.monotonic() < until:
        time.sleep(0.1)
    time.sleep(1.0)  # others would have been started by now
    return _servers(workspace)


@contextmanager
def _opened(workspace: Workspace, config: Path, way: Way) -> Iterator[list[_Window]]:
    folders = [workspace.path / f"project-{number}" for number in range(_WINDOWS)]
    for folder in folders:
        folder.mkdir(exist_ok=True)
    with ExitStack() as stack:
        windows: list[_Window] = []
        for number in range(_WINDOWS):
            began = time.perf_counter()
            window = _Window(workspace, config, folders[number % way.folders])
            stack.callback(window.close)
            window.open()
            column = "further window ms" if windows else "first window ms"
            way.add(column, (time.perf_counter() - began) * 1e3)
            if not windows:
                _settled(workspace)
            windows.append(window)
        yield windows
    until = time.monotonic() + _GONE_S
    while _owners(workspace) and time.monotonic() < until:
        time.sleep(0.1)


def _measure(workspace: Workspace, way: Way) -> None:
    config = _configured(workspace, way)
    with _opened(workspace, config, Way("to store the lists", 1)):
        pass
    for _ in range(_RUNS):
        with _opened(workspace, config, way) as windows:
            everyone = [window.pid for window in windows]
            way.add("processes of servers", _settled(workspace))
            way.add("PSS MB", memory_of(tree_of([*everyone, *_owners(workspace)])).pss / MB)
            for window in windows:
                for server in range(_SERVERS):
                    began = time.perf_counter()
                    window.call(server)
                    way.add("first call ms", (time.perf_counter() - began) * 1e3)
            way.add("after all calls", _servers(workspace))
            after = memory_of(tree_of([*everyone, *_owners(workspace)])).pss / MB
            way.add("after all calls PSS MB", after)


def measure() -> Section:
    """Measure every way."""
    ways = [
        Way("five windows in one folder", 1),
        Way("five windows in five folders", _WINDOWS),
        Way('five folders, folder = "any"', _WINDOWS, 'folder = "any"'),
    ]
    for way in ways:
        with Workspace() as workspace:
            _measure(workspace, way)
    rows = [
        [way.name, *(f"{median(way.figures[column]):.0f}" for column in _COLUMNS[1:])]
        for way in ways
    ]
    about = (
        f"{_WINDOWS} windows over {_SERVERS} servers, small Python programs, with stored lists. "
        "A start is from the window's spawn to its list of all tools. The memory is of windows, "
        "gateway and servers. A first call starts the process of its folder, if there is none. "
        f"Without Portico there would be {_WINDOWS * _SERVERS} processes from the start."
    )
    return Section(tables=[Table("Five windows, 20 servers", _COLUMNS, rows)], notes=[about])


def main() -> int:
    """Print, and keep in the docs."""
    os.environ.setdefault("PORTICO_DEBUGGABLE", "1")  # else only root could measure its memory
    facts = machine.facts()
    text = f"{facts}\n\n{measure().markdown()}"
    print(f"## {HEADING}\n\n{text}")
    report.keep(PART, HEADING, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
