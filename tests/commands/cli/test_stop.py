"""`portico stop`, and commands that meet a gateway which is ending."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gateway.observed import Window, portico, prepared
from tests.rigs.running import troubled
from tests.support.running import WAIT_S
from tests.wrap.standing import until

pytestmark = pytest.mark.slow


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


def running(home: Path, *words: str) -> "subprocess.Popen[str]":
    """A command that runs."""
    return subprocess.Popen(
        [sys.executable, "-m", "portico", *words, "--config", str(home / "portico.toml")],
        env={**os.environ, "PORTICO_HOME": str(home / "home")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def calling(home: Path, window: Window) -> None:
    """Start a call that never ends, and wait until its server runs it."""
    params = {"name": "maths__wait", "arguments": {}}
    window.send({"jsonrpc": "2.0", "id": "long", "method": "tools/call", "params": params})

    def is_busy() -> bool:
        (gateway,) = json.loads(portico(home, "status", "--json").stdout)
        connections = gateway["servers"][0]["connections"]
        return any(one["busy"] for one in connections)

    until(is_busy, "the call does not run")


def test_it_says_which_calls_it_waits_for(home: Path) -> None:
    prepared(home)
    with Window(home) as window:
        window.ready()
        calling(home, window)
        with running(home, "stop") as stop:
            assert stop.stderr is not None
            said = stop.stderr.readline()
            os.kill(window.owner, 9)
            assert stop.wait(WAIT_S) == 0
    waits = "waits for 1 call of maths"
    assert said == f"process {window.owner} {waits}; `kill {window.owner}` ends it\n"


def test_it_names_them_again_when_it_gives_up(home: Path) -> None:
    prepared(home)
    with Window(home) as window:
        window.ready()
        calling(home, window)
        ran = running(home, "stop", "--within", "1")
        _, err = ran.communicate(timeout=WAIT_S)
        os.kill(window.owner, 9)
    assert ran.returncode == 1
    assert "has not ended after 1 s: it waits for 1 call of maths; `kill " in err


def test_a_refresh_right_after_the_last_window_closed_uses_another_gateway(home: Path) -> None:
    command, *args = troubled("lingers")
    entry = f"command = {json.dumps(command)}\nargs = {json.dumps(args)}\n"
    prepared(home, f"[servers.lingers]\n{entry}")
    for _ in range(3):
        with Window(home) as window:
            window.ready()
            assert window.process.stdin is not None
            window.process.stdin.close()
            ran = portico(home, "servers", "refresh", "--config", str(home / "portico.toml"))
        assert (ran.returncode, ran.stderr) == (0, "")
        assert len(ran.stdout.splitlines()) == 2


def test_a_server_that_was_enabled_or_added_just_now_can_be_refreshed(home: Path) -> None:
    config = prepared(home)
    entry = config.read_text().replace("[servers.maths]", "[servers.more]")
    with config.open("a") as file:
        file.write(f"{entry}enabled = false\n")
    path = ("--config", str(config))
    with Window(home) as window:
        window.ready()
        for _ in range(3):  # at any time since the gateway looked last
            assert portico(home, "servers", "enable", "more", *path).returncode == 0
            ran = portico(home, "servers", "refresh", "more", *path)
            assert (ran.returncode, ran.stderr) == (0, "")
            assert ran.stdout.startswith("more ")
            assert portico(home, "servers", "disable", "more", *path).returncode == 0
            ran = portico(home, "servers", "refresh", "more", *path)
            assert ran.returncode == 1
            assert "there is no server 'more'" in ran.stderr
        assert portico(home, "servers", "refresh", "nothing", *path).returncode == 1
