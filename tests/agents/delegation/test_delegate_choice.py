"""The agent that gets a delegated task: named, preferred, skipped, over quota or busy."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from tests.agents.delegation.delegations import (
    Crew,
    acp,
    data,
    delegate,
    in_state,
    over_http,
    refusal,
    words,
)
from tests.agents.turns.rig import FAKE
from tests.serve.gateway import Gateway

pytestmark = pytest.mark.slow

LINE = FAKE.with_name("line_agent.py")
LOGIN = {"code": -32000, "message": "Authentication required"}


def cli(*argv: str, **keys: Any) -> dict[str, Any]:
    """An agent of one command per prompt."""
    return {
        "kind": "cli",
        "command": argv[0],
        "args": [*argv[1:]],
        "capabilities": ["shell"],
        **keys,
    }


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("choice")
    agents = {
        "first": acp({"say": "first"}, priority=9),
        "second": acp({"say": "second"}, capabilities=["code", "docs"], priority=5),
        "off": acp(enabled=False, capabilities=["code", "secret"]),
        "missing": {
            "command": "no-such-agent",
            "supervised": True,
            "capabilities": ["rare", "gone"],
            "priority": 9,
        },
        "broken": acp(script={"exit_at_once": 3, "why": "no key\n"}, capabilities=["rare"]),
        "spare": acp({"say": "spare"}, capabilities=["rare"], priority=-0),
        "future": acp(script={"version": 2}, capabilities=["next"]),
        "locked": acp(
            script={"answers": {"session/new": {"error": LOGIN}}},
            capabilities=["locked"],
            preset="qwen",
        ),
        "limited": acp(capabilities=["few"], rate_limit={"requests_per_minute": 1}),
        "shell": cli("/bin/echo", "ran", "{prompt}"),
        "line": {
            "kind": "line",
            "command": sys.executable,
            "args": ["-I", "-S", str(LINE), '{"content": [{"type": "text", "text": "one line"}]}'],
            "capabilities": ["line"],
        },
    }
    rules = [
        {
            "task_type": "code",
            "keywords": ["parser", "slow query"],
            "preferred_agents": ["second", "first"],
        }
    ]
    crew = Crew(folder, agents, rules, gateway={"expose": "all"})
    with Gateway(crew.home, crew.config) as running:
        yield running


@pytest.fixture
def connect(gateway: Gateway) -> Any:
    return over_http(gateway.port)


async def test_a_rule_prefers_agents_for_a_keyword_and_priority_decides_otherwise(
    connect: Any,
) -> None:
    async with connect as client:
        for prompt, agent in [
            ("write a Parser, please", "second"),
            ("why is this slow\nquery slow?", "second"),
            ("compare parsers", "first"),
        ]:
            found = data(await delegate(client, prompt=prompt))
            assert (found["agent_id"], found["result"]) == (agent, agent)


@pytest.mark.parametrize(
    ("agent", "type", "why"),
    [
        ("frist", "code", "there is no agent 'frist'; did you mean first?"),
        ("nobody", "code", "there is no agent 'nobody'; choose from first, second"),
        ("first", "docs", "first does not accept tasks of type 'docs': it accepts code"),
        ("off", "code", "off is disabled: set enabled = true in its config to use it"),
        ("missing", "gone", "missing cannot run: there is no command 'no-such-agent'; install it"),
        ("", "poetry", 'delegate_task: task_type: "poetry" is not one of "code", '),
        ("", "gone", "no agent is available for a task of type 'gone': missing cannot run"),
    ],
)
async def test_an_agent_that_cannot_get_a_task_is_an_error_never_another_agent(
    connect: Any, agent: str, type: str, why: str
) -> None:
    async with connect as client:
        assert refusal(await delegate(client, agent, task_type=type)).startswith(why)


async def test_agents_that_do_not_start_are_skipped_and_the_result_says_why(connect: Any) -> None:
    async with connect as client:
        found = data(await delegate(client, task_type="rare"))
        assert (found["agent_id"], found["result"]) == ("spare", "spare")
        missing, broken = found["skipped"]
        assert missing.startswith("missing cannot run: there is no command")
        assert "broken" in broken
        assert "no key" in broken
        agents = data(await client.call_tool("agent_status", {}))["agents"]
        state = {one["id"]: (one["state"], one["reason"]) for one in agents}
        assert state["broken"][0] == "unavailable"
        assert "no key" in state["broken"][1]
        assert state["spare"] == ("ready", "")


async def test_a_named_agent_that_does_not_start_is_an_error(connect: Any) -> None:
    async with connect as client:
        result = await delegate(client, "broken", task_type="rare")
        assert "no key" in refusal(result)
        found = result.structured_content
        assert found is not None
        assert (found["agent_id"], found["status"]) == ("broken", "failed")


async def test_an_agent_of_another_version_or_without_a_login_is_explained(connect: Any) -> None:
    async with connect as client:
        why = refusal(await delegate(client, task_type="next"))
        assert "future speaks version 2 of ACP, and Portico version 1" in why
        why = refusal(await delegate(client, task_type="locked"))
        assert why.count("locked needs a login: run `qwen") == 1
        assert "then try again" in why


async def test_a_used_quota_is_an_error_with_the_time_of_the_next_slot(connect: Any) -> None:
    async with connect as client:
        assert data(await delegate(client, task_type="few"))["agent_id"] == "limited"
        for named in ("", "limited"):
            why = refusal(await delegate(client, named, task_type="few"))
            assert "limited is over its quota (1 of 1 requests per minute)" in why
            assert "the next slot is free in " in why
        agents = data(await client.call_tool("agent_status", {}))["agents"]
        (limited,) = [one for one in agents if one["id"] == "limited"]
        assert (limited["state"], limited["quota"][0]["left"]) == ("over quota", 0)


async def test_a_named_agent_is_tried_again_at_once_after_its_repair(tmp_path: Path) -> None:
    # A start that fails sends no prompt, and uses no quota.
    fake = acp({"say": "repaired"}, rate_limit={"requests_per_day": 1})
    program = tmp_path / "agent"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    crew = Crew(tmp_path, {"own": {**fake, "command": str(program)}})
    with Gateway(crew.home, crew.config) as gateway:
        async with over_http(gateway.port) as client:
            assert "own" in refusal(await delegate(client, "own"))
            program.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
            assert "own cannot run" in refusal(await delegate(client))
            assert words(await delegate(client, "own")) == "repaired"


async def test_agents_of_the_other_kinds_do_their_work_and_are_shown_as_unsupervised(
    connect: Any,
) -> None:
    async with connect as client:
        assert words(await delegate(client, task_type="shell", prompt="a; b")) == "ran a; b\n"
        assert words(await delegate(client, task_type="line")) == "one line"
        status = await client.call_tool("agent_status", {})
        kinds = {one["id"]: one["supervised"] for one in data(status)["agents"]}
        assert (kinds["shell"], kinds["line"], kinds["first"]) == (False, False, True)
        assert words(status).count("unsupervised") == 2


async def test_tasks_of_a_busy_agent_wait_in_order_and_others_do_not(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    agents = {
        "single": acp({"pass": str(gate)}, script={"echo_prompt": True}, max_concurrent=1),
        "free": acp({"say": "free"}),
    }
    crew = Crew(tmp_path, agents, agents_defaults={"max_concurrent": 3})
    with Gateway(crew.home, crew.config) as gateway:
        async with over_http(gateway.port) as client:
            tasks = [await begun(client, "single", f"number {n}") for n in range(4)]
            await message_of(client, tasks[1], "waiting for single: it is busy")
            assert data(await delegate(client))["agent_id"] == "free"
            ended = []
            for task in tasks:
                await anyio.to_thread.run_sync(gate.write_text, "on ")
                found = await in_state(client, task, "completed")
                assert f"number {tasks.index(task)}" in found["result"]
                ended.append(found["task_id"])
            assert ended == tasks


async def begun(client: Client, agent: str, prompt: str) -> str:
    """Delegate a task in the background; its id."""
    found = data(await delegate(client, agent, prompt=prompt, background=True))
    id: str = found["task_id"]
    return id


async def message_of(client: Client, task: str, message: str) -> None:
    """Wait until a task shows a message."""
    while True:
        found = data(await client.call_tool("agent_status", {"task_id": task}))
        if found.get("message") == message:
            return
        await asyncio.sleep(0.02)
