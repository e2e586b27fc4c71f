"""Delegations behind a link: whichever way their results leave, they have passed it, once."""

import asyncio
import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.agents.delegation.delegations import Crew, acp, data, delegate, over_http, words
from tests.serve.gateway import Gateway
from tests.support.running import WAIT_S
from tests.support.shared import ROOT
from tests.tasks_protocol.follower import ABLE, Follower, FollowingWeb

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("linked-delegations")]

SECRET = "ana@example.com"
CLEAN = "write to [e-mail] [passed]"
ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Crew:
    folder = tmp_path_factory.mktemp("linked")
    os.mkfifo(folder / "gate")
    agents = {
        "quick": acp({"say": f"write to {SECRET}"}),
        "slow": acp({"pass": str(folder / "gate")}),
    }
    links = [str(ROOT / "tests" / "agents" / "delegation" / "servers" / "marking.py")]
    defaults = {"sync_budget_s": 30}
    gateway = {"expose": "all", "links": links}
    return Crew(folder, agents, agents_defaults=defaults, gateway=gateway)


@pytest.fixture(scope="module")
def gateway(crew: Crew) -> Iterator[Gateway]:
    with Gateway(crew.home, crew.config) as running:
        yield running


async def terminal(crew: Crew, *command: str) -> str:
    """The output of a command."""
    running = await asyncio.create_subprocess_exec(
        *[word for word in crew.command(*command) if word not in ("--config", str(crew.config))],
        env=crew.environment,
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(WAIT_S):
        output, _ = await running.communicate()
    return output.decode()


@ERAS
async def test_a_delegation_that_waits_passes_the_link_once(
    crew: Crew, gateway: Gateway, era: str
) -> None:
    async with over_http(gateway.port, era) as client:
        assert words(await delegate(client, "quick")) == CLEAN
        newest = (await crew.tasks())[0]
        told = await client.call_tool("agent_status", {"task_id": newest.id, "wait_s": 50})
        assert words(told) == CLEAN
        assert CLEAN in await terminal(crew, "tasks", "wait", newest.id)


@ERAS
async def test_a_delegation_in_the_background_passes_the_link_once(
    crew: Crew, gateway: Gateway, era: str
) -> None:
    async with over_http(gateway.port, era) as client:
        id = data(await delegate(client, "slow", background=True))["task_id"]
        (crew.work.parent / "gate").write_text(f"write to {SECRET}")
        for tool in ("agent_status", "task_status"):
            told = await client.call_tool(tool, {"task_id": id, "wait_s": 50})
            assert words(told) == CLEAN
        shown = await terminal(crew, "tasks", "show", id, "--json")
        assert CLEAN in shown
        assert SECRET not in json.dumps(json.loads(shown)["result"])


@ERAS
def test_a_delegation_as_a_task_passes_the_link_once(gateway: Gateway, era: str) -> None:
    with FollowingWeb(gateway.port, modern=era == "modern") as client:
        if not client.modern:
            client.hello(ABLE)
        outcome = client.outcome(_begun(client))
        assert outcome["result"]["content"][0]["text"] == CLEAN
        assert SECRET not in json.dumps(outcome)


def _begun(client: Follower) -> str:
    more: dict[str, Any] = {"task_type": "code", "prompt": "do it", "agent_id": "quick"}
    return client.begin("delegate_task", **more)
