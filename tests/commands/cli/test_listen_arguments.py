"""The options by which `serve`, `wrap` and `run` are told where to serve, and whom."""

import pytest

from portico.commands.cli.main import main

SERVING = ("serve", "wrap", "run")
SHARED = ("--http", "--auth", "--token-file", "--allow-host", "--drain", "--drain-notice")


@pytest.mark.parametrize("option", SHARED)
def test_an_option_of_the_door_reads_the_same_wherever_it_is(
    option: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    told = []
    for command in SERVING:
        assert main([command, "--help"]) == 0
        lines = capsys.readouterr().out.splitlines()
        told += [line.split() for line in lines if line.startswith(f"  {option} ")]
    assert len(told) == len(SERVING)
    assert told[0] == told[1] == told[2]


@pytest.mark.parametrize("command", SERVING)
@pytest.mark.parametrize("option", ["--drain", "--drain-notice"])
@pytest.mark.parametrize("given", ["-1", "nan", "inf", "soon", ""])
def test_a_drain_that_is_no_time_is_refused(
    command: str, option: str, given: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, option, given, "x.py"]) == 2
    assert f"argument {option}: {given!r} is not a number of seconds" in capsys.readouterr().err


@pytest.mark.parametrize("command", SERVING)
@pytest.mark.parametrize(
    ("option", "given", "says"),
    [
        ("--http", "nope", "'nope' is not an address: give PORT, HOST:PORT or [IPV6]:PORT"),
        ("--http", "99999", "'99999' is not an address"),
        ("--allow-host", "http://a", "'http://a' is not a host: use NAME or NAME:PORT"),
    ],
)
def test_where_nobody_can_be_is_wrong_usage(
    command: str, option: str, given: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, option, given, "x.py"]) == 2
    assert f"argument {option}: {says}" in capsys.readouterr().err
