"""`portico doctor` finds every planted fault, with its remedy, and no other."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from portico.commands.cli.main import main
from portico.commands.doctor.faults import FAULTS
from tests.commands.doctor.planted import PLANTED, Setup
from tests.support.tmux import tmux

FIXED = ("drafts", "orphan")
"""Faults that --fix always removes."""


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Setup]:
    with ExitStack() as stack:
        made = Setup(tmp_path, stack)
        for name, value in made.environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(made.project)
        yield made


def doctor(capfd: pytest.CaptureFixture[str], *options: str) -> tuple[int, dict[str, Any]]:
    capfd.readouterr()
    code = main(["doctor", "--json", *options])
    found: dict[str, Any] = json.loads(capfd.readouterr().out)
    return code, found


def test_a_healthy_setup_has_no_problems(setup: Setup, capfd: pytest.CaptureFixture[str]) -> None:
    setup.agent({"capabilities": {"auth": {"status": {}}}})
    setup.client(setup.user / ".cursor" / "mcp.json", "portico")  # only Portico itself
    code, found = doctor(capfd)
    assert (code, found["ok"], found["problems"]) == (0, True, [])
    assert found["facts"]["protocol"] == ["good: 2025-11-25"]
    assert found["facts"]["agents"] == ["helper: login unknown"]
    assert main(["doctor"]) == 0
    assert capfd.readouterr().out.endswith("no problems\n")


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found_and_no_other(
    setup: Setup, capfd: pytest.CaptureFixture[str], fault: str
) -> None:
    id, plant = PLANTED[fault]
    plant(setup)
    code, found = doctor(capfd)
    assert [one["fault"] for one in found["problems"]] == [id], found
    assert (code, found["ok"]) == (1, False)
    (problem,) = found["problems"]
    assert problem["check"] == FAULTS[id].check
    assert problem["problem"]
    assert problem["remedy"]
    assert "{" not in problem["remedy"].replace("${", "")
    if id in FIXED:
        code, found = doctor(capfd, "--fix")
        assert (code, [one["fixed"] for one in found["problems"]]) == (0, [True])
        assert doctor(capfd)[0] == 0


def test_all_faults_at_once_are_all_found(setup: Setup, capfd: pytest.CaptureFixture[str]) -> None:
    quick = [
        *("a variable that is not set", "a command that is not there", "a server that exits"),
        *("a runtime that fails", "a token that all can read", "unfinished files", "an orphan"),
        *("a client's own server", "an agent that is not installed"),
        "a config that a group can write",
    ]
    for number, fault in enumerate(quick):
        PLANTED[fault][1](setup)
        text = setup.config.read_text()
        setup.config.write_text(text.replace("[servers.x]", f"[servers.x{number}]"))
    code, found = doctor(capfd)
    expected = sorted(PLANTED[fault][0] for fault in quick)
    assert (code, sorted(one["fault"] for one in found["problems"])) == (1, expected)


@pytest.mark.parametrize("mode", [0o660, 0o606])
def test_fix_makes_the_config_private_again(
    setup: Setup, capfd: pytest.CaptureFixture[str], mode: int
) -> None:
    setup.config.chmod(mode)
    text = setup.config.read_text()
    assert doctor(capfd, "--fix")[0] == 0
    assert setup.config.stat().st_mode & 0o022 == 0
    assert (doctor(capfd)[0], setup.config.read_text()) == (0, text)


def test_little_free_disk_is_a_problem(setup: Setup, capfd: pytest.CaptureFixture[str]) -> None:
    code, found = doctor(capfd, "--min-free", "999999999")
    assert (code, [one["fault"] for one in found["problems"]]) == (1, ["low-disk"])


def test_a_gateway_of_another_version_is_a_problem(
    setup: Setup, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("portico.commands.cli.doctor.__version__", "99.0")
    with setup.gateway():
        code, found = doctor(capfd)
    assert (code, [one["fault"] for one in found["problems"]]) == (1, ["old-gateway"])


def test_below_an_agent_nothing_is_fixed(setup: Setup, capfd: pytest.CaptureFixture[str]) -> None:
    setup.config.chmod(0o660)
    script = "import os, sys; open('/proc/self/comm', 'w').write('portico-keeper'); "
    script += "import subprocess; sys.exit(subprocess.run(sys.argv[1:]).returncode)"
    command = [sys.executable, "-m", "portico", "doctor", "--fix"]
    done = subprocess.run([sys.executable, "-c", script, *command], check=False)
    assert done.returncode == 1
    assert "only a person may use it" in capfd.readouterr().err
    assert setup.config.stat().st_mode & 0o020


def test_at_a_real_terminal_problems_are_shown_with_their_remedies(setup: Setup) -> None:
    PLANTED["a command that is not there"][1](setup)
    with tmux(setup.user, setup.project, setup.environment()) as terminal:
        terminal.type(f"{sys.executable} -m portico doctor; echo exit $?")
        screen = terminal.until("exit 1")
        assert "commands     1 problem" in screen
        assert "x: there is no command 'portico-nowhere'" in screen
        assert "remedy: install portico-nowhere, or correct the entry of x in the config" in screen
        assert "checking servers ..." in screen
        setup.config.write_text(setup.server("good"))
        terminal.type(f"clear; {sys.executable} -m portico doctor; echo exit $?")
        assert "no problems" in terminal.until("exit 0")


def test_every_fault_has_a_test() -> None:
    planted = {id for id, _ in PLANTED.values()} | {"low-disk", "old-gateway"}
    assert planted == {*FAULTS}
    assert len(PLANTED) > 20
