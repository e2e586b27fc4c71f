"""The command itself: help, versions, suggestions, exit codes, and nothing heavy on the way."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from portico import __version__
from portico.commands.cli import main as command
from portico.commands.cli.main import COMMANDS, main
from portico.core.model.errors import PorticoError
from tests.upstream.connections.fakes import bad_server

PORTICO = [sys.executable, "-m", "portico"]


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(f"  {name}" in out for name in COMMANDS)


def test_no_command_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "usage: portico COMMAND" in said.err


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"portico {__version__}\n"


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("cal", "did you mean 'call'?"),
        ("inspct", "'inspect'"),
        ("zzz", "choose from wrap, serve, run"),
        ("help inspct", "did you mean 'inspect'?"),
    ],
)
def test_an_unknown_command_is_wrong_usage_with_the_nearest_named(
    typed: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    *_, name = words = typed.split()
    assert main(words) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"portico: there is no command '{name}'; ")
    assert hint in said
    assert said.count("\n") == 1


def test_an_unknown_option_is_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--verison"]) == 2
    said = "portico: there is no option '--verison'; did you mean '--version'?\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("name", ["call", "inspect"])
def test_each_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    assert f"usage: portico {name}" in capsys.readouterr().out


def test_help_with_a_command_is_that_commands_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "search"]) == 0
    assert "usage: portico search" in capsys.readouterr().out


def test_wrong_usage_of_a_command_is_two(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["call"]) == 2
    assert "TARGET" in capsys.readouterr().err


class Usage(PorticoError):
    exit_code = 2


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (PorticoError("it is broken"), 1, "portico: it is broken\n"),
        (Usage("like this"), 2, "portico: like this\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_a_failure_it_can_explain_is_one_line_and_a_code(
    raised: BaseException,
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(_: list[str]) -> int:
        raise raised

    monkeypatch.setattr("portico.commands.cli.inspect.main", fail)
    assert command.main(["inspect", "x"]) == code
    assert capsys.readouterr().err == said


def test_a_bug_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("portico.commands.cli.inspect.main", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main(["inspect", "x"])


def test_a_reader_that_has_seen_enough_is_no_traceback() -> None:
    target = shlex.join(bad_server("fine").argv)
    # The far end of its stdout is closed before it writes.
    inspect = subprocess.Popen(
        [sys.executable, "-m", "portico", "inspect", target],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert inspect.stdout is not None
    assert inspect.stderr is not None
    inspect.stdout.close()
    with inspect.stderr:
        assert inspect.stderr.read() == b""
    assert inspect.wait() == 141


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["serve", "--help"]])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_help_that_nobody_reads_to_its_end_is_no_traceback(
    words: list[str], unbuffered: str
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    env = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    with os.fdopen(writing) as out:
        run = subprocess.run(
            [*PORTICO, *words], stdout=out, stderr=subprocess.PIPE, env=env, check=False
        )
    assert run.stderr == b""
    assert run.returncode in (0, 141)  # argparse takes no notice of a failed write


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a full device")
def test_output_that_cannot_be_written_is_one_line() -> None:
    with open("/dev/full", "w") as out:
        run = subprocess.run(
            [*PORTICO, "--help"], stdout=out, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (run.returncode, run.stderr) == (1, "portico: No space left on device\n")


@pytest.mark.parametrize(
    ("closed", "code", "said"),
    [
        (">&-", 1, "no gateway is running, and there is no config"),
        ("2>&-", 1, ""),
        ("<&- >&- 2>&-", 1, ""),
    ],
)
def test_a_closed_stream_is_as_good_as_one_that_nobody_reads(
    closed: str, code: int, said: str, tmp_path: Path
) -> None:
    line = f"exec {shlex.join(PORTICO)} status {closed}"
    run = subprocess.run(
        ["/bin/sh", "-c", line],
        capture_output=True,
        text=True,
        env=os.environ | {"PORTICO_HOME": str(tmp_path)},
        check=False,
    )
    assert run.returncode == code
    assert said in run.stderr
    assert "Traceback" not in run.stderr


def test_arguments_from_a_closed_input_are_no_json(tmp_path: Path) -> None:
    line = f"exec {shlex.join(PORTICO)} call server.py add - <&-"
    run = subprocess.run(
        ["/bin/sh", "-c", line], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert run.returncode in (1, 2)
    assert run.stderr.startswith("portico: ")


@pytest.mark.parametrize("heavy", ["argparse", "asyncio", "httptools", "msgspec", "rich"])
def test_the_way_to_a_command_loads_nothing_heavy(heavy: str) -> None:
    code = f"import portico.commands.cli.main, sys; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_python_m_portico_is_the_command() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "portico", "--version"], capture_output=True, text=True, check=True
    )
    assert run.stdout == f"portico {__version__}\n"
