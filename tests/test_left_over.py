"""A test run that leaves a process behind fails, and ends it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from portico.upstream.process.process_tree import GUARDIAN_NAME
from tests.support.left_over import left_over
from tests.support.shared import ROOT
from tests.support.unprivileged import unprivileged
from tests.wrap.faults import alive
from tests.wrap.standing import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only /proc shows variables")

LEAVES = """
import subprocess

def test_it(tmp_path):
    left = subprocess.Popen(["sleep", "600"], start_new_session=True, env={env})
    open("pid", "w").write(str(left.pid))
    assert {passes}
"""


def run(tmp_path: Path, test: str, *options: str) -> "subprocess.CompletedProcess[str]":
    (tmp_path / "test_it.py").write_text(test)
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.left_over", *options]
    return subprocess.run(
        [*command, "-p", "no:cacheprovider", "-c", os.devnull, "test_it.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEFT_OVER_S", "0.2")


@pytest.mark.parametrize("options", [(), ("-n", "1")])
@pytest.mark.parametrize("passes", [True, False])
def test_a_process_that_is_left_fails_the_run_and_is_ended(
    passes: bool, options: tuple[str, ...], tmp_path: Path
) -> None:
    done = run(tmp_path, LEAVES.format(env=None, passes=passes), *options)
    assert done.returncode == 1
    assert ": sleep 600" in done.stdout
    until(lambda: not alive({left_by(tmp_path)}), "it stays")


def left_by(tmp_path: Path) -> int:
    return int((tmp_path / "pid").read_text())


def test_a_process_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    done = run(tmp_path, LEAVES.format(env={"PATH": os.environ["PATH"]}, passes=True))
    assert alive({left_by(tmp_path)})
    os.kill(left_by(tmp_path), signal.SIGKILL)
    assert done.returncode == 0, done.stdout


WAITS = "import time; time.sleep(600)"
GUARDIAN = [str(ROOT), GUARDIAN_NAME, "0"]
"""Looks like the guardian of a Portico that has ended."""


def test_a_guardian_that_is_left_is_found() -> None:
    with subprocess.Popen([sys.executable, "-c", WAITS, *GUARDIAN], env={}) as guardian:
        until(lambda: guardian.pid in left_over(), "it is not found")
        assert guardian.pid not in left_over(is_nested=True)
        guardian.kill()


CLOSED = """
import subprocess, sys
from tests.support.left_over import left_over
harden = "from portico.upstream.process.hardening import harden; harden()"
code = f"import sys; {harden}; print(flush=True); sys.stdin.read()"
command = [sys.executable, "-c", code]
with subprocess.Popen(command, stdin=-1, stdout=-1, env={"PATH": ""}) as closed:
    closed.stdout.readline()
    print(closed.pid in left_over(), closed.pid in left_over(is_nested=True))
    closed.stdin.close()
"""


def test_without_root_a_closed_process_is_found_by_its_command_line() -> None:
    command = unprivileged(sys.executable, "-c", CLOSED)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("True False\n", "")


def test_a_run_within_another_leaves_the_guardians_of_that_one_alone(tmp_path: Path) -> None:
    starts = LEAVES.replace('["sleep", "600"]', repr([sys.executable, "-c", WAITS, *GUARDIAN]))
    done = run(tmp_path, starts.format(env={}, passes=True))
    assert alive({left_by(tmp_path)})
    os.kill(left_by(tmp_path), signal.SIGKILL)
    assert done.returncode == 0, done.stdout


def test_a_run_that_leaves_nothing_passes(tmp_path: Path) -> None:
    assert run(tmp_path, "def test_it(): pass").returncode == 0
