"""Bundles of 50 components, their size, and the time to reload what was saved."""

import asyncio
import hashlib
import io
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

from bench.report import Section, Table, at_most, rounded
from bench.scale import Scale
from portico.commands.authoring.collected import CollectedBundle
from portico.commands.authoring.new_command import main as new
from portico.edge.client.client import Client
from portico.edge.client.connect import connect
from portico.library.bundles.bundle_reader import open_bundle_file
from portico.library.bundles.bundle_writer import write_bundle
from portico.library.components.classify import classify
from portico.library.components.project import project_in
from portico.library.components.project_builds import run_build
from portico.upstream.wires.streamable_http import Url
from tests.support import node
from tests.support.running import free_port

HEADING = "Bundles and reloads"

_COMPONENTS = 50
_SIZES = (5, 12, _COMPONENTS)
_ROUNDS, _BUILDS, _SAVES = 7, 3, 5
_POLL_S = 0.002
_WAIT_S = 120.0
_COMPOSE_MS, _PYTHON_MS, _JAVASCRIPT_MS, _MORE = 1_000, 500, 6_000, 4_096
_ABOUT = (
    "The fastest of a few rounds. Beside each time is that of the same work without Portico: the "
    "same files read and hashed, Python started, the build of the project run.",
    "A bundle is as large as its files, and each component adds its entry and its digest: 4 KB are "
    "exceeded from 13 components on.",
    "A reload is timed from the save until a client that is connected gets the new answer. Files "
    "are looked at every 300 ms.",
)
_TOOL = '''from portico import Server

server = Server("part-{number}")


@server.tool
def tool_{number}(a: int, b: int) -> int:
    """Add two numbers, in component {number}."""
    return a + b
'''


def measure(scale: Scale) -> Section:
    """Time to compose, verify and reload; the size of bundles."""
    rounds = min(_ROUNDS, scale.start_rounds)
    rows: list[tuple[str, float, float]] = []
    more: list[tuple[int, int]] = []
    home = os.environ.get("PORTICO_HOME")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        os.environ["PORTICO_HOME"] = str(folder / "home")
        try:
            paths = _components(folder)
            more += [(count, _beyond_files(paths[:count])) for count in _SIZES]
            rows.append(_composing(folder / "all.portico", paths, rounds))
            rows += _reloading(folder, rounds)
        finally:
            _restore("PORTICO_HOME", home)
    tables = [
        Table("Time", ("what", "ms", "without Portico"), [_row(*one) for one in rows]),
        Table("Size", ("a bundle of", "bytes beyond its files"), [_sizes(*one) for one in more]),
    ]
    limits = (_COMPOSE_MS, _PYTHON_MS, _JAVASCRIPT_MS)
    budgets = [
        at_most(what, ms, most, " ms") for (what, ms, _), most in zip(rows, limits, strict=True)
    ]
    budgets += [
        at_most(f"a bundle of {count} components, beyond its files", size, _MORE, " bytes")
        for count, size in more
    ]
    return Section(notes=list(_ABOUT), tables=tables, budgets=budgets)


def _composing(bundle: Path, paths: list[Path], rounds: int) -> tuple[str, float, float]:
    composed = _fastest(lambda: write_bundle(str(bundle), _compose(paths), force=True), rounds)
    verified = _fastest(lambda: _verify(bundle), rounds)
    hashed = _fastest(lambda: hashlib.sha256(b"".join(p.read_bytes() for p in paths)), rounds)
    return f"compose and verify {len(paths)} components", composed + verified, hashed


def _reloading(folder: Path, rounds: int) -> Iterator[tuple[str, float, float]]:
    start = _fastest(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True), rounds)
    python = _new_project(folder, "python")
    yield "from save to reloaded, Python", _reload(python, "hi.py"), start
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{node.node().parent}{os.pathsep}{before}"
    try:
        js = _new_project(folder, "js")
        shutil.copytree(node.jco().parents[3], js / "node_modules", symlinks=True)
        build = project_in(str(js))
        assert build is not None
        built = _fastest(lambda: asyncio.run(run_build(build)), min(_BUILDS, rounds))
        yield "from save to reloaded, JavaScript", _reload(js, "app.js"), built
    finally:
        _restore("PATH", before)


def _restore(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def _row(what: str, took: float, floor: float) -> tuple[str, str, str]:
    return what, rounded(took), rounded(floor)


def _sizes(count: int, more: int) -> tuple[str, str]:
    return f"{count} Python components", f"{more:,}"


def _beyond_files(paths: list[Path]) -> int:
    return len(_compose(paths)) - sum(path.stat().st_size for path in paths)


def _components(folder: Path) -> list[Path]:
    (folder / "parts").mkdir()
    found = [folder / "parts" / f"part{number}.py" for number in range(_COMPONENTS)]
    for number, path in enumerate(found):
        path.write_text(_TOOL.format(number=number))
    return found


def _compose(paths: list[Path]) -> bytes:
    components = [classify(str(path)) for path in paths]
    return CollectedBundle().compose(components, overridden={}, transport="stdio")


def _verify(path: Path) -> None:
    with open_bundle_file(str(path)) as bundle:
        bundle.verify()


def _fastest(work: Callable[[], object], rounds: int) -> float:
    """Return the fewest milliseconds of some rounds."""
    best = float("inf")
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - started)
    return best * 1000


def _new_project(folder: Path, lang: str) -> Path:
    project = folder / f"project-{lang}"
    with redirect_stdout(io.StringIO()):
        new(["hi", "--lang", lang, "-o", str(project)])
    return project


def _reload(project: Path, source: str) -> float:
    """Return the fewest milliseconds from a save until a connected client gets its answer."""
    port = free_port()
    with _watching(project, port):
        return asyncio.run(_fastest_answer(project / source, port))


async def _fastest_answer(source: Path, port: int) -> float:
    text, best = await asyncio.to_thread(source.read_text), float("inf")
    async with await connect(Url(f"http://127.0.0.1:{port}/mcp")) as client:
        for number in range(_SAVES):
            started = time.perf_counter()
            edited = text.replace("Welcome, ", f"Welcome {number}, ")
            await asyncio.to_thread(source.write_text, edited)
            await _until_answered(client, f"Welcome {number}, Ada!")
            best = min(best, time.perf_counter() - started)
    return best * 1000


async def _until_answered(client: Client, wanted: str) -> None:
    async with asyncio.timeout(_WAIT_S):
        while True:
            result = await client.call_tool("welcome", {"name": "Ada"})
            if result["content"][0]["text"] == wanted:
                return
            await asyncio.sleep(_POLL_S)


@contextmanager
def _watching(project: Path, port: int) -> Iterator[None]:
    lines: queue.Queue[str] = queue.Queue()
    command = [sys.executable, "-m", "portico", "run", "--watch", str(project)]
    command += ["--http", str(port), "--auth", "none"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)

    def read() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            lines.put(line)

    threading.Thread(target=read, daemon=True).start()
    try:
        _until(lines, "serving")
        yield
    finally:
        process.terminate()
        process.wait()


def _until(lines: "queue.Queue[str]", shown: str) -> None:
    end = time.monotonic() + _WAIT_S
    while shown not in lines.get(timeout=max(0.1, end - time.monotonic())):
        pass
