"""`portico status`: what runs, how each server fares, and what is known where nothing runs."""

import json
import os
import pty
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from portico import __version__
from portico.commands.cli.main import main
from portico.commands.console.running import RunningPortico
from portico.commands.console.tables import duration
from tests.gateway.observed import Gateway, Window, portico, prepared
from tests.rigs.running import bad
from tests.support.running import WAIT_S
from tests.wrap.crowd import Served
from tests.wrap.standing import Standing, until


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PORTICO_HOME", str(tmp_path / "home"))
    return tmp_path


def status_of(home: Path, *words: str) -> list[dict[str, Any]]:
    ran = portico(home, "status", "--json", *words)
    assert ran.returncode == 0, ran.stderr
    answer: list[dict[str, Any]] = json.loads(ran.stdout)
    return answer


def test_with_nothing_at_all_it_says_how_to_begin(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status"]) == 1
    assert capsys.readouterr().err == (
        "portico: no gateway is running, and there is no config at "
        f"{home}/home/config/portico.toml; create it with `portico servers add NAME COMMAND`\n"
    )


def test_a_config_that_cannot_be_read_is_told_with_its_problem(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "portico.toml").write_text("[servers.a]\ncomand = 'x'\n")
    assert main(["status", "--config", str(home / "portico.toml")]) == 1
    assert "did you mean command?" in capsys.readouterr().err


@pytest.mark.slow
def test_a_gateway_that_does_not_run_shows_what_its_servers_offered_last(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = '[servers.new]\ncommand = "x"\n[servers.off]\ncommand = "x"\nenabled = false\n'
    config = str(prepared(home, more))
    assert portico(home, "describe", "--config", config, "maths__add").returncode == 0
    assert main(["status", "--config", config]) == 0
    title, head, *rows = capsys.readouterr().out.splitlines()
    assert title == f"not running: {config} (from cached lists)"
    assert head.split() == ["server", "state", "tools", "age", "starts", "last", "error"]
    cells = [row.split() for row in rows]
    assert [row[:4] for row in cells] == [
        ["maths", "not", "running", "3"],
        ["new", "not", "running", "?"],
        ["off", "disabled", "?", "-"],
    ]


@pytest.mark.slow
def test_each_gateway_and_each_wrap_is_shown_with_its_servers(home: Path) -> None:
    off = '[servers.off]\ncommand = "x"\nenabled = false\n'
    config = prepared(home, f'[servers.broken]\ncommand = "/no/such/program"\n{off}')
    wrapped = ("--name", "wrapped", "--", *bad("stdio", "plain"))
    with Window(home) as window, Standing(home / "home", *wrapped) as wrap:
        window.ready()
        wrap.initialize()
        wrap.said("echo", text="hello")
        wrap.reachable()
        gateway, alone = sorted(status_of(home), key=lambda one: "gateway" not in one)
        text = portico(home, "status").stdout
        only = status_of(home, "--config", str(config))
    assert (gateway["running"], gateway["pid"]) == (True, window.owner)
    assert gateway["config"] == str(config)
    maths, broken, switched_off = gateway["servers"]
    assert (maths["server"], maths["tools"], maths["error"]) == ("maths", 3, "")
    assert maths["starts"] >= 1
    assert (broken["state"], broken["pending"]) == ("failed", True)
    assert "/no/such/program" in broken["error"]
    assert switched_off == {"server": "off", "state": "disabled"}
    assert (gateway["url"], gateway["disabled"]) == ("", ["off"])
    assert [one["server"] for one in alone["servers"]] == ["wrapped"]
    assert [one["pid"] for one in only] == [window.owner]
    assert f"serve: process {window.owner}, {config}, 3 tools, 1 window, exposes " in text
    assert f", version {__version__}\n" in text
    assert f"wrap: process {wrap.process.pid}\n" in text
    assert "cannot start" in text.partition("broken")[2].partition("\n")[0]
    assert text.partition("  off ")[2].split()[0] == "disabled"


@pytest.mark.slow
def test_a_gateway_over_http_is_shown_too(home: Path) -> None:
    with Gateway(home, "--http", "127.0.0.1:0") as gateway:
        until(
            lambda: status_of(home, "--config", str(home / "portico.toml"))[0]["running"], "unseen"
        )
        (running,) = status_of(home)
        text = portico(home, "status").stdout
        assert running["pid"] == gateway.process.pid
        assert running["url"] == f"http://127.0.0.1:{gateway.port}/mcp"
        assert f"portico.toml, {running['url']}, 3 tools" in text
    (after,) = status_of(home, "--config", str(home / "portico.toml"))
    assert after["running"] is False


@pytest.mark.slow
def test_a_wrap_over_http_is_shown_with_its_url(home: Path) -> None:
    wrap = Served(home / "home", "--name", "wrapped", "--", *bad("stdio", "plain"))
    try:
        until(lambda: portico(home, "status").returncode == 0, "it cannot be asked")
        (alone,) = status_of(home)
        text = portico(home, "status").stdout
    finally:
        wrap.stop()
    url = f"http://127.0.0.1:{wrap.port}/mcp"
    assert alone["url"] == url
    assert [one["server"] for one in alone["servers"]] == ["wrapped"]
    assert text.startswith(f"wrap: process {wrap.process.pid}, {url}\n")


def watching(home: Path, *words: str, out: int, term: str = "xterm") -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "portico", "status", "--watch", *words],
        env={**os.environ, "PORTICO_HOME": str(home / "home"), "COLUMNS": "120", "TERM": term},
        stdout=out,
        stderr=subprocess.PIPE,
    )


@pytest.mark.slow
def test_watching_prints_each_change_once_and_ends_well_on_ctrl_c(home: Path) -> None:
    config = str(prepared(home))
    with watching(home, "--json", "--config", config, out=subprocess.PIPE) as watch:
        try:
            assert watch.stdout is not None
            first = json.loads(watch.stdout.readline())
            assert first[0]["running"] is False
            with Window(home) as window:
                window.ready()
                while not (seen := json.loads(watch.stdout.readline()))[0]["running"]:
                    pass
                assert seen[0]["pid"] == window.owner
            while json.loads(watch.stdout.readline())[0]["running"]:
                pass
            watch.send_signal(signal.SIGINT)
            assert watch.wait(WAIT_S) == 0
            assert watch.stdout.read() == b""
        finally:
            watch.kill()


@pytest.mark.slow
def test_watching_on_a_terminal_draws_over_itself(home: Path) -> None:
    prepared(home, '[servers.strange]\ncommand = "x"\n')
    keeper, terminal = pty.openpty()
    with watching(home, "--config", str(home / "portico.toml"), out=terminal) as watch:
        os.close(terminal)
        try:
            seen = b""
            while seen.count(b"strange") < 2:
                seen += os.read(keeper, 4096)
            watch.send_signal(signal.SIGINT)
            assert watch.wait(WAIT_S) == 0
        finally:
            watch.kill()
            os.close(keeper)
    assert b"\x1b[2K" in seen


def test_watching_on_a_terminal_that_cannot_draw_prints_changes(home: Path) -> None:
    prepared(home, '[servers.strange]\ncommand = "x"\n')
    keeper, terminal = pty.openpty()
    config = str(home / "portico.toml")
    with watching(home, "--config", config, out=terminal, term="dumb") as watch:
        os.close(terminal)
        try:
            seen = b""
            while b"strange" not in seen:
                seen += os.read(keeper, 4096)
            watch.send_signal(signal.SIGINT)
            assert watch.wait(WAIT_S) == 0
        finally:
            watch.kill()
            os.close(keeper)
    assert b"\x1b" not in seen


def test_watching_ends_when_nobody_reads_any_more(home: Path) -> None:
    config = str(prepared(home))
    with watching(home, "--config", config, out=subprocess.PIPE) as watch:
        try:
            assert watch.stdout is not None
            assert watch.stdout.readline().startswith(b"not running: ")
            watch.stdout.close()
            assert watch.wait(WAIT_S) == 141
        finally:
            watch.kill()


def test_what_a_server_says_cannot_draw_on_the_terminal(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = {"server": "e\x1b[2Jvil", "state": "failed", "tools": 1, "error": "a\x1b]0;b\x07\nc"}
    answer = [RunningPortico(True, {"pid": 1, "servers": [evil]})], ""
    monkeypatch.setattr("portico.commands.cli.status.list_porticos", lambda config, version: answer)
    assert main(["status"]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\x07" not in out
    assert len(out.splitlines()) == 3


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(None, "-"), (0.4, "0 s"), (59, "59 s"), (120, "2 min"), (7200, "2 h"), (200_000, "2 d")],
)
def test_a_time_is_told_in_one_unit(seconds: float | None, shown: str) -> None:
    assert duration(seconds) == shown


def test_one_that_does_not_say_how_it_fares_is_named(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = home / "home" / "state" / "control"
    folder.mkdir(parents=True, mode=0o700)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / f"{os.getpid()}.sock"))
        listener.listen()

        def refuse() -> None:
            talk, _ = listener.accept()
            with talk:
                talk.recv(1000)
                talk.sendall(b'{"ok":false,"error":"ask me later"}\n')

        refusing = threading.Thread(target=refuse)
        refusing.start()
        assert main(["status"]) == 1
        refusing.join(WAIT_S)
    assert capsys.readouterr().out == f"process {os.getpid()}\n  ask me later\n"
