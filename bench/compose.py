"""`python -m bench.compose`: bundles of 50 components, their size, and the time to reload.

Each row has its budget. The machine's own speed is beside it: how long the same work takes without
Portico (reading and hashing the same bytes, starting Python).
"""

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
from portico.components.classify import classify
from tests.support import node

COMPONENTS = 50
ROUNDS = 7
_WAIT_S = 120.0
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
        five = sum(path.stat().st_size for path in paths[:5])
        more = len(_compose(paths[:5])) - five
        print(f"{'a bundle of 5, beyond its files':40} {more:8,} B   budget 4,096 B")
        start = _fastest(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True))
        _row("from save to reloaded, Python", _reload(folder, "python", "hi.py"), 0.5, start)
        _row("from save to reloaded, JavaScript", _reload(folder, "js", "app.js"), 6.0, start)


def _row(what: str, seconds: float, budget: float, floor: float) -> None:
    verdict = "met" if seconds <= budget else "MISSED"
    print(f"{what:40} {seconds * 1000:8,.0f} ms  budget {budget * 1000:,.0f} ms: {verdict}", end="")
    print(f"  (without Portico {floor * 1000:,.1f} ms)")


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


def _fastest(work: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - started)
    return best


def _reload(folder: Path, lang: str, source: str) -> float:
    """Return the fastest time from a save until the new version serves."""
    os.environ["PATH"] = f"{node.node().parent}{os.pathsep}{os.environ['PATH']}"
    project = folder / f"project-{lang}"
    new(["hi", "--lang", lang, "-o", str(project)])
    if lang == "js":
        shutil.copytree(node.jco().parents[3], project / "node_modules", symlinks=True)
    best = float("inf")
    with _watching(project) as lines:
        for number in range(3):
            text = (project / source).read_text()
            started = time.perf_counter()
            (project / source).write_text(f"{text}\n{'//' if lang == 'js' else '#'} {number}\n")
            _until(lines, "reloaded")
            best = min(best, time.perf_counter() - started)
    return best


@contextmanager
def _watching(project: Path) -> Iterator["queue.Queue[str]"]:
    lines: queue.Queue[str] = queue.Queue()
    command = [sys.executable, "-m", "portico", "run", "--watch", str(project), "--http", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)

    def read() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            lines.put(line)

    threading.Thread(target=read, daemon=True).start()
    try:
        _until(lines, "serving")
        yield lines
    finally:
        process.terminate()
        process.wait()


def _until(lines: "queue.Queue[str]", shown: str) -> None:
    end = time.monotonic() + _WAIT_S
    while shown not in lines.get(timeout=max(0.1, end - time.monotonic())):
        pass


if __name__ == "__main__":
    main()
