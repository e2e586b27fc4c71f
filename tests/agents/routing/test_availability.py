"""The state of each agent: whether it can run, why not, and what is known about it."""

from pathlib import Path
from typing import Any

import pytest

from portico.agents.routing.availability import candidates, problem, state_of, to_json
from portico.agents.routing.quotas import QuotaStatus, quotas_in_memory
from portico.agents.turns.usage import AgentUsage
from portico.core.config.agents_schema import AgentEntry, AgentsConfig, RateLimit

ONE = RateLimit(requests_per_minute=1)


def program(folder: Path, name: str) -> str:
    """Make a program, and return a PATH with nothing else."""
    (folder / name).write_text("#!/bin/sh\n")
    (folder / name).chmod(0o755)
    return str(folder)


def entry(id: str = "a", command: str = "sh", **more: Any) -> AgentEntry:
    return AgentEntry(id=id, command=command, capabilities=("code",), **more)


def test_an_agent_whose_command_is_there_can_run(tmp_path: Path) -> None:
    path = program(tmp_path, "agent")
    assert problem(entry(command="agent", env={"PATH": path})) == ""
    assert problem(entry(command=f"{path}/agent", env={"PATH": ""})) == ""


@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        (
            entry(command="agent"),
            "there is no command 'agent'; install it, or correct its command in the config",
        ),
        (
            entry(command="qwen", preset="qwen"),
            "there is no command 'qwen'; install it with `npm install -g @qwen-code/qwen-code`",
        ),
        (
            entry(command="/opt/qwen", preset="qwen"),
            "there is no command '/opt/qwen'; install it, or correct its command in the config",
        ),
        (
            entry(command="claude-agent-acp", preset="claude"),
            "there is no command 'claude-agent-acp', only 'claude-code-acp', its former name; "
            "install @agentclientprotocol/claude-agent-acp",
        ),
        (entry(problem="KEY is not set"), "KEY is not set"),
        (entry(command="agent", enabled=False), ""),
    ],
)
def test_an_agent_that_cannot_run_has_a_reason_and_a_remedy(
    agent: AgentEntry, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", program(tmp_path, "claude-code-acp"))
    assert problem(agent) == expected


async def test_the_state_of_an_agent_comes_from_its_entry_its_quota_and_its_tasks() -> None:
    keys: dict[str, dict[str, Any]] = {
        "ready": {},
        "off": {"enabled": False},
        "broken": {"problem": "KEY is not set"},
        "failed": {},
        "full": {"rate_limit": ONE},
        "busy": {"max_concurrent": 2},
    }
    entries = {id: entry(id, **more) for id, more in keys.items()}
    quotas = quotas_in_memory()
    assert await quotas.start("full", ONE) is None
    failures = {"failed": "it needs a login"}
    found = await candidates(AgentsConfig(entries=entries), quotas, {"busy": 2}, failures)
    assert {one.entry.id: state_of(one) for one in found} == {
        "ready": "ready",
        "off": "disabled",
        "broken": "unavailable",
        "failed": "unavailable",
        "full": "over quota",
        "busy": "busy",
    }
    assert [one.prompts for one in found] == [0, 0, 0, 0, 1, 0]
    await quotas.close()


async def test_the_data_of_an_agent_has_its_quota_and_totals_and_no_secrets() -> None:
    agent = entry(args=("--key=s3cret",), env={"KEY": "s3cret"}, rate_limit=ONE, kind="cli")
    quotas = quotas_in_memory()
    assert await quotas.start("a", ONE) is None
    assert await quotas.finish("t", "a", "completed", AgentUsage(total_tokens=7))
    (found,) = await candidates(AgentsConfig(entries={"a": agent}), quotas)
    status, totals = (await quotas.status({"a": ONE}))["a"], (await quotas.totals())["a"]
    data = to_json(found, status, totals)
    assert (data["state"], data["supervised"], data["prompts_24h"]) == ("over quota", False, 1)
    (limit,) = data["quota"]
    assert (limit["limit"], limit["left"]) == ("requests_per_minute", 0)
    assert data["reason"].startswith("a is over its quota (1 of 1 requests per minute)")
    assert (data["totals"]["tokens"], data["totals"]["cost"]) == (7, None)
    assert "s3cret" not in str(data)
    assert to_json(found, QuotaStatus(), None)["totals"]["tokens"] is None
    await quotas.close()
