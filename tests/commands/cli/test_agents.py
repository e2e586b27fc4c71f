"""`portico agents`: the list of agents, and the explanation of a choice."""

import asyncio
import json
from pathlib import Path

import pytest

from portico.agents.delegation.stored_delegation import AgentNote, StoredDelegation, note_text
from portico.agents.routing.quotas import quotas_in_folder
from portico.agents.turns.usage import AgentUsage
from portico.commands.cli.main import main
from portico.core.config.agents_schema import RateLimit
from portico.core.config.paths import state_folder
from portico.core.model.context import LOCAL
from portico.core.protocol.codec import encode
from portico.library.tasks.store.record import CANCELLED
from portico.library.tasks.store.store import tasks_in_folder
from tests.support.task_stores import running

CONFIG = """
[[agents]]
id = "shell"
command = "/bin/sh"
supervised = true
capabilities = ["code", "docs"]
rate_limit = { requests_per_minute = 2, cost_per_day = 1.5 }

[[agents]]
id = "line"
kind = "line"
command = "/bin/sh"
args = ["${MISSING}"]
capabilities = ["code"]

[[agents]]
id = "off"
command = "/bin/sh"
capabilities = ["code"]
enabled = false

[[routing.rules]]
task_type = "code"
keywords = ["parser"]
preferred_agents = ["line", "shell"]
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PORTICO_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MISSING", raising=False)
    path = tmp_path / "portico.toml"
    path.write_text(CONFIG)
    return str(path)


async def use(prompts: int) -> None:
    """Use the first agent."""
    quotas = quotas_in_folder(state_folder())
    for _ in range(prompts):
        assert await quotas.start("shell", RateLimit()) is None
    usage = AgentUsage(total_tokens=1234, cost=0.5, currency="USD")
    assert await quotas.finish("t1", "shell", "completed", usage)
    assert await quotas.finish("t2", "shell", "failed", AgentUsage())
    await quotas.close()


def test_the_list_has_the_state_and_the_quota_of_each_agent(
    config: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["agents", "--config", config]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines[2:5]] == [
        ["shell", "ready", "2"],
        ["line", "unavailable", "no"],
        ["off", "disabled", "no"],
    ]
    assert "2 requests/min, 1.5 cost/day" in lines[2]
    assert lines[5].startswith("  line: agents[1].args[0]: MISSING is not set")
    assert [line for line in lines if "unsupervised" in line] == [
        "  line: unsupervised: an agent of kind line cannot request permissions",
        "  off: unsupervised: an agent without a preset may not request permissions",
    ]
    # A command that only shows something leaves nothing behind.
    assert not (tmp_path / "home").exists()


def test_the_list_has_the_use_of_each_agent_and_unknown_is_not_0(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(use(2))
    assert main(["agents", "--config", config]) == 0
    shell = capsys.readouterr().out.splitlines()[2]
    assert "over quota" in shell
    assert "0 requests/min, 1 cost/day  1 completed, 1 failed  1,234   0.50 USD" in shell
    assert main(["agents", "--json", "--config", config]) == 0
    agents = {one["id"]: one for one in json.loads(capsys.readouterr().out)}
    assert agents["shell"]["free_at"] is not None
    assert agents["shell"]["totals"]["tasks"] == {"completed": 1, "failed": 1}
    assert agents["line"]["totals"]["tokens"] is None
    assert [agents[id]["supervised"] for id in ("shell", "line")] == [True, False]


def test_an_explanation_shows_rules_skipped_agents_and_the_choice(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["agents", "explain", "write", "a", "parser", "--type", "code", "--config", config]
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "rule 1 (line, shell) matches: the prompt has the keyword 'parser'"
    assert lines[1].startswith("skipped by rule 1: line cannot run: agents[1].args[0]: MISSING")
    assert lines[2] == "shell, by rule 1: the prompt has the keyword 'parser'"
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["agent"], found["via"]) == ("shell", "rule 1")
    assert [one["agent"] for one in found["skipped"]] == ["line"]
    assert main([*words, "--agent", "shell"]) == 0
    assert capsys.readouterr().out == "shell, by request: the request names it\n"


def test_an_explanation_without_an_agent_fails_with_the_reason(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["agents", "explain", "x", "--config", config]
    assert main([*words, "--type", "poetry"]) == 1
    assert capsys.readouterr().err == (
        "portico: no agent accepts tasks of type 'poetry'; choose from code, docs\n"
    )
    assert main([*words, "--type", "code", "--agent", "off"]) == 1
    assert "off is disabled" in capsys.readouterr().err
    asyncio.run(use(2))
    assert main([*words, "--type", "docs", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["agent"], found["free_at"] is None) == ("", False)


async def delegated(*, ends: bool = False) -> str:
    """A task of the first agent, which runs or has ended; its id."""
    store = tasks_in_folder(state_folder())
    stored = StoredDelegation(task_type="docs", prompt="x", cwd="/")
    await store.submit(LOCAL, "delegate@some-scope-", encode(stored))
    task, lease = await running(store, "delegate@some-scope-")
    await store.annotate(lease, note_text(AgentNote(agent_id="shell")))
    if ends:
        await store.finish(lease, CANCELLED)
    await store.close()
    return task.id


def test_an_explanation_knows_the_agents_that_are_busy(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(delegated())
    Path(config).write_text(CONFIG.replace('"/bin/sh"', '"/bin/sh"\nmax_concurrent = 1', 1))
    expected = "shell, by capability: it has the capability 'docs', which is busy"
    for words in (["agents", "explain", "x"], ["delegate", "--explain", "x"]):
        assert main([*words, "--type", "docs", "--config", config]) == 0
        assert capsys.readouterr().out.endswith(f"{expected}: the task would wait\n")


def test_an_explanation_of_a_continued_task_has_its_type_and_agent(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["delegate", "--explain", "go on", "--config", config]
    ended = asyncio.run(delegated(ends=True))
    assert main([*words, "--resume", ended[:12], "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["task_type"], found["agent"], found["via"]) == ("docs", "shell", "request")
    runs = asyncio.run(delegated())
    assert main([*words, "--resume", runs]) == 1
    assert capsys.readouterr().err == (
        f"portico: --resume: {runs[:12]} is running; wait for it, or cancel it\n"
    )


@pytest.mark.parametrize("kind", ["cli", "line"])
def test_the_test_of_an_agent_that_is_not_started_says_so(
    config: str, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    Path(config).write_text(
        f'[[agents]]\nid = "it"\nkind = "{kind}"\ncommand = "/bin/sh"\ncapabilities = ["code"]\n'
    )
    assert main(["agents", "test", "it", "--config", config]) == 0
    assert capsys.readouterr().out == (
        f"it: found the command /bin/sh; agents of kind {kind} are not started by this test\n"
    )
    assert main(["agents", "test", "it", "--json", "--config", config]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["ok"], found["started"], found["notes"]) == (True, False, [])


def test_nothing_is_delegated_if_no_agent_is_enabled(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    off = CONFIG.replace("capabilities", "enabled = false\ncapabilities", 2)
    Path(config).write_text(off)
    assert main(["delegate", "x", "--type", "code", "--config", config]) == 1
    assert capsys.readouterr().err == (
        f"portico: {config}: no agent is enabled (shell, line, off); "
        "set enabled = true for one of them, or remove enabled = false\n"
    )


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["exlain", "x"], "there is no action 'exlain'; use explain or test, or none for the list"),
        (["explain", "--type", "code"], "explain needs a PROMPT"),
        (["explain", "x"], "explain needs --type TYPE, the type of the task"),
        (["--type", "code"], "--type works only with explain"),
        (["--agent", "a"], "--agent works only with explain"),
    ],
)
def test_wrong_usage_is_explained(
    words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["agents", *words]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"portico agents: error: {expected}"


def test_a_config_without_agents_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "portico.toml"
    path.write_text("[agents_defaults]\n")
    for words in (["agents"], ["delegate", "x"]):
        assert main([*words, "--config", str(path)]) == 1
        assert capsys.readouterr().err == (
            f"portico: {path}: no agent is configured; add a table such as [[agents]] with "
            'id = "qwen" and preset = "qwen" (presets: qwen, gemini, claude, codex, opencode, '
            "copilot), "
            "or one with a command\n"
        )
