"""A private key beside a component never gets into its bundle."""

import sys
from pathlib import Path

from tests.library.distribution.rigs import Home, run

CALC = """
from portico import Server

server = Server("calc")


@server.tool
def add(a: int, b: int = 1) -> int:
    return a + b
"""


def test_a_bundle_of_a_folder_with_a_key_has_no_key(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    for name in ("portico.key", "calc.key", "calc"):
        assert home.portico("key", "new", home.folder / name).returncode == 0
    (home.folder / "calc.py").write_text(CALC)
    made = tmp_path / "calc.portico"
    command = [sys.executable, "-m", "portico", "compose", str(home.folder / "calc.py")]
    done = run([*command, "-o", str(made)], home.env)
    assert done.returncode == 0, done.stderr
    data = made.read_bytes()
    assert b"calc.py" in data
    assert b"PRIVATE KEY" not in data
