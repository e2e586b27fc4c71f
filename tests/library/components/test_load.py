"""A file is imported as it is saved, and quickly; serving one starts fast."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from portico.library.components.classify import classify
from portico.library.components.load import load_file

NOT_NEEDED = (
    "portico.core.catalog.clashes",
    "portico.core.catalog.resource_routing",
    "portico.library.chain.views",
    "portico.library.chain.filtered_catalogs",
    "portico.library.components.own_modules",
    "portico.library.functions.lifespan",
    "portico.core.state.error_location",
    "portico.edge.transport.starting",
    "portico.gateway.endpoints",
    "portico.gateway.members",
    "portico.upstream.process",
    "argparse",
)
_SERVER = 'from portico import Server\nserver = Server("{name}")\n'


@pytest.fixture(autouse=True)
def own_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)


def name_in(file: Path) -> str:
    server = load_file(classify(str(file))).server
    assert server is not None
    return server.name


def test_a_change_within_a_second_that_keeps_the_size_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    found = []
    for name in ("a", "b", "c"):
        file.write_text(_SERVER.format(name=name))
        found.append(name_in(file))

    assert found == ["a", "b", "c"]
    assert not (tmp_path / "__pycache__").exists()


def test_a_file_that_rests_is_compiled_once(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text(_SERVER.format(name="a"))
    os.utime(file, (time.time() - 60,) * 2)

    assert name_in(file) == "a"
    (compiled,) = (tmp_path / "__pycache__").iterdir()
    made = compiled.stat().st_mtime_ns
    assert name_in(file) == "a"
    assert compiled.stat().st_mtime_ns == made


def test_serving_one_file_imports_only_what_it_needs(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(_SERVER.format(name="a"))
    code = (
        "import sys\n"
        "from portico.commands.cli.main import main\n"
        "code = main(['run', 'shop.py'])\n"
        f"found = [name for name in {NOT_NEEDED!r} if name in sys.modules]\n"
        "print(code, found, file=sys.stderr)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.stderr == "0 []\n"
