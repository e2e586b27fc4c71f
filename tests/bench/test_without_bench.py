"""Rows without a fast path switch off one that there is."""

import subprocess
import sys

import pytest

from bench.contenders import HTTP, STDIO, Contender
from bench.process import Workspace
from bench.servers.portico_without import WITHOUT
from bench.tables.serve_calls import PATHS
from bench.web import WebServer

_PROGRAM = "bench.servers.portico_without"
_ROWS = [contender for contender in (*HTTP, *STDIO) if _PROGRAM in contender.argv]
_OFF = f"from {_PROGRAM} import WITHOUT\nfor off in WITHOUT.values(): off()"


def _path(contender: Contender) -> str:
    return contender.argv[contender.argv.index(_PROGRAM) + 1]


def test_every_fast_path_has_a_row_and_every_row_a_fast_path() -> None:
    assert {*PATHS, *map(_path, _ROWS)} == set(WITHOUT)


def test_all_that_is_switched_off_is_there() -> None:
    ran = subprocess.run([sys.executable, "-c", _OFF], capture_output=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, b"")


@pytest.mark.slow
@pytest.mark.parametrize(
    "contender", [c for c in _ROWS if c in HTTP], ids=lambda contender: contender.name
)
def test_a_row_without_a_fast_path_answers_as_portico_does(contender: Contender) -> None:
    with Workspace() as workspace, (server := WebServer(contender, workspace, 50)).process:
        server.open()
        server.check_call()
