"""`portico delegate` and `portico agents test`, with scripted agents behind a real gateway."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.agents.delegation.delegations import Crew, acp
from tests.agents.turns.rig import permission
from tests.commands.cli.test_call_terminal import at_terminal
from tests.support.running import WAIT_S
from tests.wrap.faults import until

pytestmark = pytest.mark.slow

RUNNING = {"update": {"sessionUpdate": "tool_call", "kind": "execute", "title": "npm test"}}
LOGIN = {"code": -32000, "message": "Authentication required"}
USAGE = {"inputTokens": 5, "outputTokens": 7}


@pytest.fixture
def crew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Crew:
    os.mkfifo(tmp_path / "gate")
    agents = {
        "quick": acp(RUNNING, {"say": "all done"}, {"stop": "end_turn", "usage": USAGE}),
        "failing": acp({"fail": {"code": -32603, "message": "no model"}}),
        "slow": acp(RUNNING, {"pass": str(tmp_path / "gate")}),
        "endless": acp(RUNNING, {"wait_for_cancel": True}),
        "asking": acp(permission(), {"say": "ok"}),
        "trusted": acp(permission(), {"say": "ok"}, permissions={"always": True}),
        "hasty": acp(permission(), {"say": "ok"}, permissions={"timeout_s": 4.0}),
        "placed": acp({"cwd": True}),
        "missing": {"command": "no-such-agent", "capabilities": ["code"]},
        "noted": acp(preset="qwen"),
        "locked": acp(script={"answers": {"session/new": {"error": LOGIN}}}, preset="qwen"),
    }
    made = Crew(tmp_path, agents)
    monkeypatch.setenv("PORTICO_HOME", str(made.home))
    monkeypatch.chdir(made.work)
    return made


def portico(crew: Crew, *words: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    """A command to its end."""
    return subprocess.run(
        crew.command(*words),
        env=crew.environment,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=2 * WAIT_S,
        check=False,
    )


def test_the_result_is_on_stdout_and_the_progress_on_stderr(crew: Crew) -> None:
    ran = portico(crew, "delegate", "--agent", "quick", "do", "it")
    assert (ran.returncode, ran.stdout) == (0, "all done\n"), ran.stderr
    assert ran.stderr.splitlines()[-1] == "quick; end_turn; input tokens 5; output tokens 7"
    ran = portico(crew, "delegate", "--agent", "quick", "--json", "-", stdin="from a pipe")
    task = json.loads(ran.stdout)
    assert (task["state"], task["result"]["structuredContent"]["result"]) == (
        "completed",
        "all done",
    )


def test_a_task_that_fails_is_exit_code_1(crew: Crew) -> None:
    ran = portico(crew, "delegate", "--agent", "failing", "do it")
    assert ran.returncode == 1
    assert "failing failed: no model (-32603)" in ran.stdout + ran.stderr
    for words, why in [
        (["--agent", "nobody", "x"], "there is no agent 'nobody'; choose from quick"),
        (["--type", "poetry", "x"], 'task_type: must be "code", not "poetry"'),
        (["--agent", "missing", "x"], "missing cannot run: there is no command"),
        (["--resume", "ptk_x.", "x"], "there is no task 'ptk_x.'; `portico tasks list` shows"),
        (["--cwd", "/no/such/folder", "--agent", "quick", "x"], "/no/such/folder"),
    ]:
        ran = portico(crew, "delegate", *words)
        assert (ran.returncode, ran.stdout) == (1, ""), words
        assert why in ran.stderr


def test_a_task_in_the_background_is_only_named(crew: Crew) -> None:
    ran = portico(crew, "delegate", "--agent", "quick", "--background", "do it")
    task = ran.stdout.strip()
    assert (ran.returncode, task[:4]) == (0, "ptk_")
    assert f"follow it with `portico tasks wait {task}`" in ran.stderr
    waited = subprocess.run(
        [*crew.command()[:3], "tasks", "wait", task],
        env=crew.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert waited.returncode == 0
    assert waited.stdout.startswith("all done\n")
    ran = portico(crew, "delegate", "--agent", "quick", "--background", "--json", "do it")
    assert json.loads(ran.stdout)["task_id"].startswith("ptk_")


def test_an_explanation_runs_nothing(crew: Crew) -> None:
    ran = portico(crew, "delegate", "--explain", "do it")
    assert (ran.returncode, ran.stdout) == (
        0,
        "quick, by capability: it has the capability 'code'\n",
    )
    assert not crew.home.exists()


def test_wrong_usage_is_explained(crew: Crew) -> None:
    assert "give a PROMPT" in portico(crew, "delegate").stderr
    assert (
        "'no' is not a number of seconds"
        in portico(crew, "delegate", "--timeout", "no", "x").stderr
    )


def test_a_timeout_ends_the_task(crew: Crew) -> None:
    ran = portico(crew, "delegate", "--agent", "endless", "--timeout", "1", "do it")
    assert ran.returncode == 1
    assert "endless was stopped: it ran for more than 1 s" in ran.stdout + ran.stderr


def test_a_person_answers_the_question_of_a_task(crew: Crew) -> None:
    words = ["delegate", "--agent", "asking", "do it", "--config", str(crew.config)]
    with at_terminal(*words) as terminal:
        terminal.until("edit it: allow it?")
        terminal.until("1. Allow once (yes)")
        terminal.answer("> ", "")
        terminal.answer("> ", "yes")
        assert terminal.end() == 0
    assert '"optionId": "once"' in terminal.screen
    assert "Send this?" not in terminal.screen


@pytest.mark.parametrize(
    ("agent", "answer", "option"),
    [
        ("asking", "yes", "once"),
        ("asking", "no", "no"),
        ("trusted", "always", "always"),
        ("asking", "Reject", "no"),
        ("asking", "Always reject", "never"),
    ],
)
def test_a_permission_is_answered_with_a_word_or_a_label(
    crew: Crew, agent: str, answer: str, option: str
) -> None:
    ran = portico(crew, "delegate", "--agent", agent, "--background", "do it")
    task = ran.stdout.strip()
    assert until(lambda: "input_required" in tasks(crew, "list").stdout)
    assert "yes (Allow once) |" in tasks(crew, "show", task).stdout
    wrong = answered(crew, task, "perhaps")
    assert wrong.returncode == 1
    assert "'perhaps' is not one of the choices; answer with one of: " in wrong.stderr
    right = answered(crew, task, answer)
    assert (right.returncode, right.stderr) == (0, "")
    assert f'"optionId": "{option}"' in tasks(crew, "wait", task).stdout


def test_always_is_refused_unless_the_config_allows_it(crew: Crew) -> None:
    task = portico(crew, "delegate", "--agent", "asking", "--background", "do it").stdout.strip()
    assert until(lambda: "input_required" in tasks(crew, "list").stdout)
    refused = answered(crew, task, "always")
    assert refused.returncode == 1
    assert "'always' is not one of the choices" in refused.stderr
    assert answered(crew, task, "no").returncode == 0


def test_a_question_that_expires_closes_its_form(crew: Crew) -> None:
    words = ["delegate", "--agent", "hasty", "do it", "--config", str(crew.config)]
    with at_terminal(*words) as terminal:
        terminal.until("edit it: allow it?")
        terminal.until("> ")
        terminal.type("1")  # too late for the rest
        terminal.until("the question is closed: it was answered elsewhere, it expired, or")
        assert terminal.end() == 0
    assert '"optionId": "no"' in terminal.screen


def test_a_question_that_is_answered_elsewhere_closes_its_form(crew: Crew) -> None:
    words = ["delegate", "--agent", "asking", "do it", "--config", str(crew.config)]
    with at_terminal(*words) as terminal:
        terminal.until("edit it: allow it?")
        assert answered(crew, the_only_task(crew), "yes").returncode == 0
        terminal.until("the question is closed")
        assert terminal.end() == 0
    assert '"optionId": "once"' in terminal.screen


def test_a_task_that_is_cancelled_at_its_question_asks_it_once(crew: Crew) -> None:
    words = ["delegate", "--agent", "asking", "do it", "--config", str(crew.config)]
    with at_terminal(*words) as terminal:
        terminal.until("edit it: allow it?")
        terminal.until("> ")
        terminal.process.send_signal(signal.SIGINT)
        terminal.answer("leave the task running? [Y/n] ", "n")
        assert terminal.end() == 1
    assert "cancelled" in terminal.screen
    assert "allow it?" not in terminal.screen


def test_without_a_terminal_a_question_is_shown_once_with_the_command_to_answer_it(
    crew: Crew,
) -> None:
    with subprocess.Popen(
        crew.command("delegate", "--agent", "asking", "do it"),
        env=crew.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        shown = []
        for line in process.stderr:
            shown.append(line)
            if "portico tasks answer" in line:
                assert answered(crew, line.split("`")[1].split()[-1], "yes").returncode == 0
        out, _ = process.communicate(timeout=WAIT_S)
        assert (process.returncode, '"optionId": "once"' in out) == (0, True)
    assert "".join(shown).count("Question to a person: asking: edit edit it: allow it?\n") == 1


def the_only_task(crew: Crew) -> str:
    """The id of the only task."""
    (task,) = json.loads(tasks(crew, "list", "--json").stdout)
    return str(task["id"])


def answered(crew: Crew, task: str, answer: str) -> "subprocess.CompletedProcess[str]":
    """Answer the question of a task in another process."""
    return tasks(crew, "answer", task, answer)


def tasks(crew: Crew, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run `portico tasks` to its end."""
    command = [*crew.command()[:3], "tasks", *words]
    return subprocess.run(
        command, env=crew.environment, capture_output=True, text=True, check=False
    )


def test_a_continued_task_stays_in_its_folder_and_a_short_id_names_it(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = crew.work / "other"
    other.mkdir()
    ran = portico(crew, "delegate", "--agent", "placed", "--json", "do it")
    task = json.loads(ran.stdout)["id"]
    monkeypatch.chdir(other)
    for words, folder in [([], crew.work), (["--cwd", "."], other)]:
        ran = portico(crew, "delegate", "--resume", task[:12], *words, "go on")
        assert (ran.returncode, ran.stdout) == (0, f"{folder}\n"), ran.stderr


@pytest.mark.parametrize(("agent", "answer"), [("slow", "y"), ("endless", "n")])
def test_ctrl_c_asks_whether_the_task_continues(crew: Crew, agent: str, answer: str) -> None:
    words = ["delegate", "--agent", agent, "do it", "--config", str(crew.config)]
    with at_terminal(*words) as terminal:
        terminal.until("running: npm test")
        terminal.process.send_signal(signal.SIGINT)
        terminal.answer("leave the task running? [Y/n] ", answer)
        code = terminal.end()
    if answer == "y":
        assert code == 0
        assert "continues; follow it with `portico tasks wait ptk_" in terminal.screen
        (crew.work.parent / "gate").write_text("in the end")
        assert until(lambda: not list((crew.home / "state" / "control").glob("*.sock")))
    else:
        assert code == 1
        assert "cancelled" in terminal.screen


def test_an_agent_is_tested(crew: Crew) -> None:
    ran = portico(crew, "agents", "test", "quick")
    assert ran.returncode == 0
    assert ran.stdout.startswith("quick: Fake Agent 1.0 is ready, after ")
    found = json.loads(portico(crew, "agents", "test", "quick", "--json").stdout)
    assert (found["ok"], found["error"]) == (True, "")


def test_the_test_of_an_agent_shows_the_notes_of_its_preset(crew: Crew) -> None:
    ran = portico(crew, "agents", "test", "noted")
    assert ran.returncode == 0, ran.stderr
    first, note = ran.stdout.splitlines()
    assert first.startswith("noted: Fake Agent 1.0 is ready")
    assert note == "  note: a second prompt in a busy session fails the first one"


@pytest.mark.parametrize(
    ("agent", "why"),
    [
        ("missing", "there is no command 'no-such-agent'; install it"),
        ("locked", "locked needs a login: run `qwen"),
        ("quik", "there is no agent 'quik'; did you mean quick?"),
    ],
)
def test_the_test_of_an_agent_that_cannot_run_says_why(crew: Crew, agent: str, why: str) -> None:
    ran = portico(crew, "agents", "test", agent)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert why in ran.stderr
