"""What cannot be read or written is a failure; a client that reads no more is none."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gateway.observed import Window, prepared
from tests.rigs.running import bad
from tests.support.messages import initialize
from tests.support.running import WAIT_S

ASKED = json.dumps(initialize()).encode() + b"\n"
SAID = "portico: cannot write responses: No space left on device\n"
UNREAD = "portico: cannot read requests: Bad file descriptor\n"


@pytest.fixture
def commands(tmp_path: Path) -> dict[str, list[str]]:
    config = str(prepared(tmp_path))
    return {
        "run": ["run", str(tmp_path / "maths.py")],
        "wrap": ["wrap", "--", *bad("stdio", "plain")],
        "serve": ["serve", "--no-refresh", "--config", config],
    }


def served(home: Path, command: list[str], out: int) -> "subprocess.CompletedProcess[str]":
    """Ask once, and have the answer written there."""
    return subprocess.run(
        [sys.executable, "-m", "portico", *command],
        env={**os.environ, "PORTICO_HOME": str(home / "home")},
        input=ASKED.decode(),
        stdout=out,
        stderr=subprocess.PIPE,
        text=True,
        timeout=WAIT_S,
        check=False,
    )


def deaf(home: Path, command: list[str]) -> "subprocess.CompletedProcess[str]":
    """Run it with an input that is open for writing only."""
    with (home / "unread").open("wb") as unread:
        return subprocess.run(
            [sys.executable, "-m", "portico", *command],
            env={**os.environ, "PORTICO_HOME": str(home / "home")},
            stdin=unread,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )


@pytest.mark.parametrize("command", ["run", "wrap", "serve"])
def test_a_full_disk_is_told_with_exit_1(
    tmp_path: Path, commands: dict[str, list[str]], command: str
) -> None:
    with open("/dev/full", "wb") as full:
        ran = served(tmp_path, commands[command], full.fileno())
    assert (ran.returncode, ran.stderr) == (1, SAID)


@pytest.mark.parametrize("command", ["run", "wrap", "serve"])
def test_a_client_that_reads_no_more_is_an_ordinary_end(
    tmp_path: Path, commands: dict[str, list[str]], command: str
) -> None:
    read, write = os.pipe()
    os.close(read)
    ran = served(tmp_path, commands[command], write)
    os.close(write)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize("command", ["run", "wrap", "serve"])
def test_requests_that_cannot_be_read_are_told_of_with_exit_1(
    tmp_path: Path, commands: dict[str, list[str]], command: str
) -> None:
    ran = deaf(tmp_path, commands[command])
    assert (ran.returncode, ran.stdout, ran.stderr) == (1, "", UNREAD)


@pytest.mark.slow
def test_a_window_onto_another_gateway_tells_it_too(
    tmp_path: Path, commands: dict[str, list[str]]
) -> None:
    with Window(tmp_path) as window, open("/dev/full", "wb") as full:
        window.ready()
        ran = served(tmp_path, commands["serve"], full.fileno())
        heard = deaf(tmp_path, commands["serve"])
        assert window.ask("ping")["result"] == {}
    assert (ran.returncode, ran.stderr) == (1, SAID)
    assert (heard.returncode, heard.stderr) == (1, UNREAD)
