"""In unusual environments `portico wrap` still serves, or reports what is missing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rigs.running import bad, listening
from tests.support.messages import initialize
from tests.support.running import WAIT_S

PORTICO = (sys.executable, "-m", "portico")
# As on a machine whose limit of threads is reached; a real one does not count for root.
THREADLESS = """
import sys, threading
def start(thread): raise RuntimeError("can't start new thread")
threading.Thread.start = start
from portico.commands.cli.main import main
sys.exit(main())
"""
# A lazy import may come too late to open its file.
FILELESS = """
import errno, os, sys
class Full:
    def find_spec(self, name, path, target=None):
        if name == "portico.edge.windows.control":
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
sys.meta_path.insert(0, Full())
from portico.commands.cli.main import main
sys.exit(main())
"""


def greeted(
    home: Path, *words: str | bytes, portico: tuple[str, ...] = PORTICO, cwd: str | None = None
) -> "subprocess.CompletedProcess[bytes]":
    """Say hello to a `portico wrap`, and leave."""
    before = () if cwd is None else ("sh", "-c", f'cd {cwd} && rmdir {cwd} && exec "$@"', "sh")
    return subprocess.run(
        [*before, *portico, "wrap", *words],
        input=json.dumps(initialize()).encode() + b"\n",
        env={**os.environ, "PORTICO_HOME": str(home)},
        capture_output=True,
        timeout=WAIT_S,
        check=False,
    )


def test_a_working_folder_that_is_gone_keeps_nobody_from_a_server_that_does_not_need_it(
    tmp_path: Path,
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    ran = greeted(tmp_path / "home", "--", *bad("stdio", "plain"), cwd=str(gone))
    assert "result" in json.loads(ran.stdout), ran
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_a_command_whose_name_is_no_text_is_named_by_its_bytes(tmp_path: Path) -> None:
    ran = greeted(tmp_path / "home", "--", b"caf\xe9")
    said = "caf\\udce9 cannot start: there is no command 'caf\\udce9'; check its name and your PATH"
    assert json.loads(ran.stdout)["error"]["message"] == said
    assert (ran.returncode, ran.stderr) == (1, f"portico: {said}\n".encode())


def test_where_no_thread_can_be_had_no_server_starts_without_a_guardian(tmp_path: Path) -> None:
    threadless = (sys.executable, "-c", THREADLESS)
    ran = greeted(tmp_path / "home", "--", *bad("stdio", "plain"), portico=threadless)
    error = json.loads(ran.stdout)["error"]
    why = "your user has too many processes; stop some, or raise `ulimit -u`"
    name = Path(sys.executable).name
    assert error["message"] == f"{name} badserver.py cannot start: {why}"
    assert error["data"]["kind"] == "start"
    assert ran.returncode == 1
    assert b"Traceback" not in ran.stderr


def test_where_no_thread_can_be_had_lists_are_served_and_not_saved(tmp_path: Path) -> None:
    threadless = (sys.executable, "-c", THREADLESS)
    with listening(bad("http", "plain")) as url:
        ran = greeted(tmp_path / "home", url, portico=threadless)
    assert "result" in json.loads(ran.stdout), ran
    assert ran.returncode == 0
    assert b"is not saved: can't start new thread" in ran.stderr
    assert b"Traceback" not in ran.stderr


def test_where_no_thread_can_be_had_to_look_up_a_name_that_is_told(tmp_path: Path) -> None:
    threadless = (sys.executable, "-c", THREADLESS)
    ran = greeted(tmp_path / "home", "http://localhost:9/mcp", portico=threadless)
    error = json.loads(ran.stdout)["error"]
    assert "cannot be reached: can't start new thread" in error["message"]
    assert error["data"]["kind"] == "network"
    assert ran.returncode == 1
    assert b"Traceback" not in ran.stderr


def test_too_many_open_files_cost_the_control_socket_and_nothing_else(tmp_path: Path) -> None:
    portico = subprocess.Popen(
        [sys.executable, "-c", FILELESS, "wrap", "--", *bad("stdio", "plain")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PORTICO_HOME": str(tmp_path)},
    )
    assert portico.stderr is not None
    first = portico.stderr.readline()
    out, rest = portico.communicate(json.dumps(initialize()).encode() + b"\n", WAIT_S)
    said = b"portico: `portico servers` cannot reach this process: Too many open files\n"
    assert (first, rest, portico.returncode) == (said, b"", 0)
    assert "result" in json.loads(out)


@pytest.mark.parametrize("home", ["unknown", "gone"])
def test_without_a_place_for_its_files_it_says_what_to_set(tmp_path: Path, home: str) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    variables = {"unknown": {"HOME": "nowhere"}, "gone": {"PORTICO_HOME": "relative"}}[home]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    kept.pop("PORTICO_HOME", None)
    ran = subprocess.run(
        ["sh", "-c", f'cd {gone} && rmdir {gone} && exec "$@"', "sh", *PORTICO, "wrap", "--", "x"],
        env={**kept, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "PORTICO_HOME" in ran.stderr
    assert len(ran.stderr.splitlines()) == 1
