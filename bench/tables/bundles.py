"""`python -m bench.compose`: bundles of 50 components, their size, and the time to reload.

Each row has its budget. The machine's own speed is beside it: how long the same work takes without
Portico (reading and hashing the same bytes, starting Python, the project's own build).
"""

import asyncio
import hashlib
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from portico.authoring.collected import CollectedBundle
from portico.authoring.new_command import main as new
from portico.bundles.bundle_reader import open_bundle_file
from portico.bundles.bundle_writer import write_bundle
from portico.client.client import Client
from portico.client.connect import connect
from portico.components.classify import classify
from portico.components.project import project_in
from portico.components.project_builds import run_build
from portico.wires.streamable_http import Url
from tests.support import node
from tests.support.running import free_port

COMPONENTS = 50
ROUNDS = 7
_SAVES = 5
_POLL_S = 0.002
_WAIT_S = 120.0
_MAX_MORE = 4096
_TOOL = '''from portico import Server

server = Server("part-{number}")


@server.tool
def tool_{number}(a: int, b: int) -> int:
    """Add two numbers, in component {number}."""
    return a + b
'''


def main() -> None:
    """Print each measurement with its budget."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        os.environ["PORTICO_HOME"] = str(folder / "home")
        paths = _components(folder)
        data = _compose(paths)
        bundle = folder / "all.portico"
        write_bundle(str(bundle), data)
        composed = _fastest(lambda: write_bundle(str(bundle), _compose(paths), force=True))
        verified = _fastest(lambda: _verify(bundle))
        hashed = _fastest(lambda: hashlib.sha256(b"".join(p.read_bytes() for p in paths)))
        _row("compose and verify 50 components", composed + verified, 1.0, hashed)
        for count in (5, 12, COMPONENTS):
            _size_row(paths[:count])
        start = _fastest(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True))
        python = _new_project(folder, "python")
        _row("from save to reloaded, Python", _reload(python, "hi.py"), 0.5, start)
        js = _new_project(folder, "js")
        build = project_in(str(js))
        assert build is not None
        built = _fastest(lambda: asyncio.run(run_build(build)), rounds=3)
        _row("from save to reloaded, JavaScript", _reload(js, "app.js"), 6.0, built)


def _row(what: str, seconds: float, budget: float, floor: float) -> None:
    verdict = "met" if seconds <= budget else "MISSED"
    print(f"{what:40} {seconds * 1000:8,.0f} ms  budget {budget * 1000:,.0f} ms: {verdict}", end="")
    print(f"  (without Portico {floor * 1000:,.1f} ms)")


def _size_row(paths: list[Path]) -> None:
    more = len(_compose(paths)) - sum(path.stat().st_size for path in paths)
    verdict = "met" if more <= _MAX_MORE else "MISSED"
    what = f"a bundle of {len(paths)}, beyond its files"
    print(f"{what:40} {more:8,} B   budget {_MAX_MORE:,} B: {verdict}")


def _components(folder: Path) -> list[Path]:
    (folder / "parts").mkdir()
    found = [folder / "parts" / f"part{number}.py" for number in range(COMPONENTS)]
    for number, path in enumerate(found):
        path.write_text(_TOOL.format(number=number))
    return found


def _compose(paths: list[Path]) -> bytes:
    components = [classify(str(path)) for path in paths]
    return CollectedBundle().compose(components, overridden={}, transport="stdio")


def _verify(path: Path) -> None:
    with open_bundle_file(str(path)) as bundle:
        bundle.verify()


def _fastest(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    best = float("inf")
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - started)
    return best


def _new_project(folder: Path, lang: str) -> Path:
    os.environ["PATH"] = f"{node.node().parent}{os.pathsep}{os.environ['PATH']}"
    project = folder / f"project-{lang}"
    new(["hi", "--lang", lang, "-o", str(project)])
    if lang == "js":
        shutil.copytree(node.jco().parents[3], project / "node_modules", symlinks=True)
    return project


def _reload(project: Path, source: str) -> float:
    """Return the fastest time from a save until a connected client gets its answer."""
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
    return best


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


if __name__ == "__main__":
    main()
