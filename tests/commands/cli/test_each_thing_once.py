"""What `portico delegate` and `tasks wait` print of an agent's work: each thing once."""

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from portico.core.model.wording import plain
from tests.agents.delegation.delegations import Crew, acp
from tests.agents.turns.rig import permission
from tests.commands.cli.test_call_terminal import at_terminal
from tests.support.running import WAIT_S
from tests.support.shared import ROOT

pytestmark = pytest.mark.slow

RUNNING = {"update": {"sessionUpdate": "tool_call", "kind": "execute", "title": "npm test"}}
USAGE = {"inputTokens": 5, "outputTokens": 7}
COST = {"sessionUpdate": "usage_update", "cost": {"amount": 5e-05, "currency": "USD"}}
MODES = {"currentModeId": "ask", "availableModes": [{"id": "ask"}, {"id": "plan"}]}
MARKING = ROOT / "tests" / "agents" / "delegation" / "servers" / "marking.py"


def crew_in(folder: Path, **more: Any) -> Crew:
    """Agents that talk, fail, or wait at a gate, before one gateway."""
    gate = folder / "gate"
    os.mkfifo(gate)
    last = ({"update": COST}, {"say": "last words"}, {"stop": "end_turn", "usage": USAGE})
    opened = {"answers": {"session/new": {"result": {"sessionId": "s", "modes": MODES}}}}
    agents = {
        "talking": acp({"say": "first line\n"}, {"say": "second"}, RUNNING, *last),
        "gated": acp({"say": "first line\nand "}, {"pass": str(gate)}),
        "printing": {
            "kind": "cli",
            "command": "sh",
            "args": ["-c", f"echo first line; printf 'and '; cat {gate}"],
            "capabilities": ["general"],
        },
        "broken": acp({"say": "half of"}, {"fail": {"code": -32603, "message": "no model"}}),
        "curious": acp({"say": "let me see"}, permission(), {"say": "seen"}),
        "wild": acp(mode="wild", script=opened),
        "planning": acp(mode="plan", script=opened),
        "skilled": acp({"say": "x"}, capabilities=["review", "general"]),
    }
    return Crew(folder, agents, **more)


@pytest.fixture
def crew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Crew:
    made = crew_in(tmp_path)
    monkeypatch.setenv("PORTICO_HOME", str(made.home))
    monkeypatch.chdir(made.work)
    return made


def started(crew: Crew, *words: str) -> "subprocess.Popen[str]":
    """A command that runs."""
    return subprocess.Popen(
        [*crew.command()[:3], *words] if words[0] == "tasks" else crew.command(*words),
        env=crew.environment,
        cwd=crew.work,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    """Its exit code, and what it has printed since then."""
    out, err = process.communicate(timeout=2 * WAIT_S)
    return process.returncode, out, err


WHOLE = "first line\nsecond\n\nlast words\n"
COSTS = "cost 0.00005; session cost 0.00005; currency USD"
SUMMARY = f"talking; end_turn; input tokens 5; output tokens 7; {COSTS}\n"


def test_a_delegation_prints_each_thing_once(crew: Crew) -> None:
    code, out, err = ended(started(crew, "delegate", "--agent", "talking", "do it"))
    assert (code, out) == (0, WHOLE)
    assert err.endswith(SUMMARY)
    assert err.count("end_turn") == 1
    assert "writing the answer" not in err


def test_waiting_for_a_task_prints_each_thing_once(crew: Crew) -> None:
    ran = ended(started(crew, "delegate", "--agent", "talking", "--background", "do it"))
    for _ in range(2):  # while it runs, perhaps, and when it has ended
        code, out, err = ended(started(crew, "tasks", "wait", ran[1].strip()))
        assert (code, out) == (0, WHOLE)
        assert err.count(SUMMARY) == 1


def test_a_failure_is_printed_once(crew: Crew) -> None:
    code, out, err = ended(started(crew, "delegate", "--agent", "broken", "do it"))
    assert code == 1
    assert out in ("", "half of\n")
    assert err.count("no model") == (out + err).count("half of") == 1
    assert not err.endswith("\nbroken\n")


@pytest.mark.parametrize(
    ("agent", "waits"),
    [("gated", False), ("gated", True), ("printing", False), ("printing", True)],
)
def test_the_text_of_an_agent_is_shown_as_it_comes(
    crew: Crew, tmp_path: Path, agent: str, waits: bool
) -> None:
    words = ["delegate", "--agent", agent, "do it"]
    if waits:
        ran = ended(started(crew, *words, "--background"))
        words = ["tasks", "wait", ran[1].strip()]
    with started(crew, *words) as process:
        out, err = process.stdout, process.stderr
        assert out is not None
        assert err is not None
        assert out.readline() == "first line\n"
        (kept,) = (crew.home / "state" / "agent-text").iterdir()
        assert kept.stat().st_mode & 0o777 == 0o600
        (tmp_path / "gate").write_text("the rest")
        assert out.read() == "and the rest\n"
        said = err.read()
    assert said.count(f"{agent}; end_turn") == 1
    assert "printed: " not in said
    assert process.returncode == 0
    assert not list((crew.home / "state" / "agent-text").iterdir())


def test_a_text_that_links_may_change_is_not_shown_before_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crew = crew_in(tmp_path, gateway={"links": [str(MARKING)]})
    with started(crew, "delegate", "--agent", "gated", "do it") as process:
        (tmp_path / "gate").write_text("the rest")
        _, out, _ = ended(process)
    assert not (crew.home / "state" / "agent-text").exists()
    assert out.count("first line") == 1


def test_a_question_begins_a_line_of_its_own(crew: Crew) -> None:
    words = ["delegate", "--agent", "curious", "do it", "--config", str(crew.config)]
    with at_terminal(*words) as terminal:
        terminal.until("edit it: allow it?")
        terminal.answer("> ", "")
        terminal.answer("> ", "yes")
        assert terminal.end() == 0
    assert terminal.screen.count("seen") == 1


def test_a_task_that_is_left_running_ends_the_line_of_its_text(crew: Crew, tmp_path: Path) -> None:
    words = ["delegate", "--agent", "gated", "do it", "--config", str(crew.config)]
    with at_terminal(*words) as terminal:
        terminal.until("first line")
        terminal.process.send_signal(signal.SIGINT)
        terminal.answer("leave the task running? [Y/n] ", "y")
        assert terminal.end() == 0
    (tmp_path / "gate").write_text("in the end")


def test_the_type_is_optional_if_the_agent_is_named(crew: Crew) -> None:
    assert ended(started(crew, "delegate", "--agent", "skilled", "do it"))[:2] == (0, "x\n")
    code, out, _ = ended(started(crew, "delegate", "--agent", "skilled", "--explain", "do it"))
    assert (code, out.split(",")[0]) == (0, "skilled")
    code, _, err = ended(started(crew, "delegate", "do it"))
    assert (code, err) == (1, "portico: give --type TYPE: code, general, review\n")
    code, _, err = ended(started(crew, "delegate", "--agent", "skiled", "do it"))
    assert (code, err) == (1, "portico: there is no agent 'skiled'; did you mean skilled?\n")


def test_an_unknown_mode_lists_the_modes_of_the_agent(crew: Crew) -> None:
    why = "wild has no mode 'wild'; set one of ask, plan in the config"
    for words in (["delegate", "--agent", "wild", "do it"], ["agents", "test", "wild"]):
        code, _, err = ended(started(crew, *words))
        assert (code, err.count(why)) == (1, 1)
    assert ended(started(crew, "delegate", "--agent", "planning", "do it"))[0] == 0


def test_an_agent_without_a_name_of_its_own_is_named_once(crew: Crew) -> None:
    nameless = acp(script={"answers": {"initialize": {"result": {"protocolVersion": 1}}}})
    (crew.work / "other").mkdir()
    made = Crew(crew.work / "other", {"alpha": nameless})
    ran = ended(started(made, "agents", "test", "alpha"))
    assert ran[1].startswith("alpha is ready, after ")


@pytest.mark.parametrize(
    ("number", "text"),
    [(5e-05, "0.00005"), (0, "0"), (7.0, "7"), (1234567, "1234567"), (0.1 + 0.2, "0.3")],
)
def test_a_number_has_no_exponent(number: float, text: str) -> None:
    assert plain(number) == text
