"""Commands that serve stdio say at a terminal what they wait for, and nothing to a client."""

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.support.running import WAIT_S

_EXAMPLE = str(ROOT / "examples" / "quickstart.py")
_RUN = (sys.executable, "-m", "portico", "run", _EXAMPLE)
_WAYS = {
    "run": (("run", _EXAMPLE), "quickstart"),
    "wrap": (("wrap", *_RUN), "python"),
    "serve": (("serve", "--config", "one.toml"), "1 server of {folder}/one.toml"),
    "serve nothing": (("serve", "--config", "none.toml"), "0 servers of {folder}/none.toml"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    args = ", ".join(f'"{word}"' for word in _RUN[1:])
    text = f'[servers.one]\ncommand = "{_RUN[0]}"\nargs = [{args}]\n'
    (tmp_path / "one.toml").write_text(text)
    (tmp_path / "off.toml").write_text(f"{text}enabled = false\n")
    (tmp_path / "none.toml").write_text("")
    return tmp_path


def started(folder: Path, words: tuple[str, ...], stdin: int) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "portico", *words],
        cwd=folder,
        env={**os.environ, "PORTICO_HOME": str(folder / "home")},
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def lines(process: "subprocess.Popen[str]") -> Iterator[str]:
    assert process.stderr is not None
    return iter(process.stderr.readline, "")


@pytest.mark.parametrize("way", _WAYS)
def test_at_a_terminal_it_says_what_it_waits_for(folder: Path, way: str) -> None:
    words, what = _WAYS[way]
    keeper, terminal = pty.openpty()
    with started(folder, words, terminal) as process:
        os.close(terminal)
        try:
            said = next(line for line in lines(process) if "over stdio" in line)
            assert said.startswith(f"portico: serving {what.format(folder=folder)}")
            assert said.endswith(" over stdio; waiting for an MCP client on standard input.\n")
            how = next(lines(process))
            assert how.startswith("  Press Ctrl-C to stop. For an HTTP endpoint: portico ")
            process.send_signal(signal.SIGINT)
            assert process.wait(WAIT_S) in (0, 130)
            assert process.stdout is not None
            assert process.stdout.read() == ""
        finally:
            process.kill()
            os.close(keeper)


def test_a_missing_command_is_named_before_any_client_comes(folder: Path) -> None:
    keeper, terminal = pty.openpty()
    with started(folder, ("wrap", "./nowhere"), terminal) as process:
        os.close(terminal)
        try:
            said = next(lines(process))
            assert said == "portico: command './nowhere' not found; clients will get an error\n"
        finally:
            process.kill()
            os.close(keeper)


@pytest.mark.parametrize("way", ["run", "wrap", "serve"])
def test_a_client_on_a_pipe_reads_nothing_of_it(folder: Path, way: str) -> None:
    with started(folder, _WAYS[way][0], subprocess.PIPE) as process:
        out, err = process.communicate("", timeout=WAIT_S)
    assert (process.returncode, out, err) == (0, "", "")


@pytest.mark.parametrize(
    ("file", "says"),
    [
        (
            "none.toml",
            "{folder}/none.toml has no servers; add one with `portico servers add NAME --config "
            "none.toml COMMAND ARGS...`; no restart is needed",
        ),
        (
            "off.toml",
            "all servers of {folder}/off.toml are disabled; enable one with `portico servers "
            "enable NAME --config off.toml`",
        ),
    ],
)
def test_a_config_without_servers_is_reported_with_what_to_do(
    folder: Path, file: str, says: str
) -> None:
    with started(folder, ("serve", "--config", file), subprocess.PIPE) as process:
        out, err = process.communicate("", timeout=WAIT_S)
    assert (process.returncode, out) == (0, "")
    assert err == f"portico: {says.format(folder=folder)}\n"


def test_a_missing_config_is_an_error_that_says_how_to_create_it(folder: Path) -> None:
    with started(folder, ("serve", "--config", "nowhere.toml"), subprocess.PIPE) as process:
        out, err = process.communicate("", timeout=WAIT_S)
    assert (process.returncode, out) == (1, "")
    remedy = "create it with `portico servers add NAME COMMAND`"
    assert err == f"portico: nowhere.toml: no such file; {remedy}\n"
