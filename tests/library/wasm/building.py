"""Compiles the components of the tests, and keeps them by the digest of their sources and tools.

They are kept in .wasm-cache: to compile one takes seconds in JavaScript, and a quarter of a minute
in Python.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from tests.support import node
from tests.support.shared import ROOT

HERE = Path(__file__).parent
CACHE = ROOT / ".wasm-cache"
WIT = HERE / "wit"
GUESTS = HERE / "guests"
NOTHING: Mapping[str, str] = {}
OWN_WIT = ROOT / "src" / "portico" / "library" / "wasm" / "wit"


def javascript(source: str, wit: Path, world: str, *, of: Mapping[str, str] = NOTHING) -> Path:
    """Return tests/library/wasm/guests/SOURCE compiled by jco for QuickJS; it imports no WASI.

    `of` replaces texts in the source, such as the version of an interface.
    """
    script = node.jco()
    tool = json.loads((script.parents[1] / "package.json").read_text())["version"]

    def build(folder: Path, out: Path) -> None:
        options = ["--backend", "quickjs", "--backend-qjs-stub-wasi", "--backend-qjs-disable-async"]
        text = (GUESTS / source).read_text()
        for old, new in of.items():
            text = text.replace(old, new)
        (folder / source).write_text(text)
        inputs = [folder / source, "--wit", _hidden_io(wit, folder), "-n", world, "-o", out]
        _run([node.node(), script, "componentize", *options, *inputs], folder)
        out.write_bytes(out.read_bytes().replace(_HIDDEN_IO.encode(), _IO.encode()))

    replaced = f" {dict(of)}" if of else ""
    return _kept(f"jco {tool}{replaced}", [GUESTS / source, wit], world, build)


def python(source: str, wit: Path, world: str, *, stub_wasi: bool = True) -> Path:
    """Return tests/library/wasm/guests/SOURCE compiled by componentize-py."""
    tool = f"componentize-py {version('componentize-py')} {stub_wasi}"

    def build(folder: Path, out: Path) -> None:
        shutil.copy(GUESTS / source, folder / "app.py")
        command = [Path(sys.executable).parent / "componentize-py", "-d", wit, "-w", world]
        stubs = ["--stub-wasi"] if stub_wasi else []
        _run([*command, "componentize", *stubs, "app", "-o", out], folder)

    return _kept(tool, [GUESTS / source, wit], world, build)


# The compiler cannot link a resource of WASI that another interface names again, as wasmcp's do.
# So it sees another name, of the same length, and the component gets the right one back.
_IO, _HIDDEN_IO = "wasi:io/", "hide:io/"


def _hidden_io(wit: Path, folder: Path) -> Path:
    copy = folder / "wit"
    shutil.copytree(wit, copy)
    for path in copy.rglob("*.wit"):
        text = path.read_text().replace(_IO, _HIDDEN_IO)
        path.write_text(text.replace(f"package {_IO[:-1]}", f"package {_HIDDEN_IO[:-1]}"))
    return copy


def wat(text: str) -> bytes:
    """Return the binary of a component that is written as text."""
    from wasmtime import wat2wasm

    return bytes(wat2wasm(text))


def _run(command: list[object], folder: Path) -> None:
    done = subprocess.run(
        [str(part) for part in command], cwd=folder, capture_output=True, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr).decode(errors="replace")[-4000:]


def _kept(tool: str, sources: list[Path], world: str, build: Callable[[Path, Path], None]) -> Path:
    digest = hashlib.sha256(f"{tool}\n{world}".encode())
    for source in sources:
        for path in _files(source):
            place = path.relative_to(ROOT)
            digest.update(f"\n{place} {len(path.read_bytes())}\n".encode() + path.read_bytes())
    CACHE.mkdir(exist_ok=True)
    name = f"{sources[0].stem}-{world}-{digest.hexdigest()[:24]}"
    kept = CACHE / f"{name}.wasm"
    # Workers of the same test run want the same component at the same time.
    with _locked(CACHE / f"{name}.lock"):
        if not kept.exists():
            with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
                out = Path(scratch) / "built.wasm"
                build(Path(scratch), out)
                os.replace(out, kept)
    return kept


def _files(source: Path) -> list[Path]:
    return [source] if source.is_file() else sorted(source.rglob("*.wit"))


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
