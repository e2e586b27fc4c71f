"""A prompt is admitted to one agent and counted once, however many others are at the same time."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

from portico.agents.routing.admission import admit
from portico.agents.routing.quotas import AgentQuotas, quotas_in_folder, quotas_in_memory
from portico.agents.routing.routing import RoutingRequest
from portico.agents.turns.delegation import launch_of
from portico.core.config.agents_schema import AgentEntry, AgentPermissions, AgentsConfig, RateLimit

REQUEST = RoutingRequest(task_type="code", prompt="fix it")


def config(*limits: int, **more: Any) -> AgentsConfig:
    """Some agents, each with its limit of prompts per day."""
    entries = [
        AgentEntry(
            id=f"agent-{number}",
            command="/bin/sh",
            capabilities=("code",),
            priority=10 - number,
            rate_limit=RateLimit(requests_per_day=limit),
            **more,
        )
        for number, limit in enumerate(limits)
    ]
    return AgentsConfig(entries={entry.id: entry for entry in entries})


async def used(quotas: AgentQuotas, agents: AgentsConfig) -> list[int]:
    status = await quotas.status({id: one.rate_limit for id, one in agents.entries.items()})
    return [one.prompts for one in status.values()]


async def test_prompts_go_to_the_next_agent_once_a_quota_is_used() -> None:
    quotas, agents = quotas_in_memory(), config(1, 2)
    found = [await admit(REQUEST, agents, quotas) for _ in range(4)]
    assert [one.agent for one in found] == ["agent-0", "agent-1", "agent-1", ""]
    assert [one.agent for one in found[1].skipped] == ["agent-0"]
    assert found[3].free_at is not None
    assert await used(quotas, agents) == [1, 2]
    await quotas.close()


async def test_the_agent_of_a_request_is_never_replaced() -> None:
    quotas, agents = quotas_in_memory(), config(1, 2)
    request = RoutingRequest(task_type="code", prompt="x", agent_id="agent-0")
    found = [await admit(request, agents, quotas) for _ in range(2)]
    assert [one.agent for one in found] == ["agent-0", ""]
    assert found[1].error.startswith("agent-0 is over its quota (1 of 1 requests per day)")
    assert await used(quotas, agents) == [1, 0]
    await quotas.close()


async def test_a_task_that_waits_for_a_busy_agent_uses_no_quota_yet() -> None:
    quotas, agents = quotas_in_memory(), config(5, max_concurrent=1)
    found = await admit(REQUEST, agents, quotas, {"agent-0": 1})
    assert (found.agent, found.waits) == ("agent-0", True)
    assert await used(quotas, agents) == [0]
    await quotas.close()


async def test_concurrent_prompts_use_every_slot_and_no_more(tmp_path: Path) -> None:
    agents = config(7, 5, 3)
    stores = [quotas_in_folder(str(tmp_path)) for _ in range(2)]
    found = await asyncio.gather(*(admit(REQUEST, agents, stores[n % 2]) for n in range(40)))
    assert Counter(one.agent for one in found) == {
        "agent-0": 7,
        "agent-1": 5,
        "agent-2": 3,
        "": 25,
    }
    assert all(one.error for one in found if not one.agent)
    assert await used(stores[0], agents) == [7, 5, 3]
    for store in stores:
        await store.close()


def test_a_configured_agent_is_started_as_its_entry_demands() -> None:
    entry = AgentEntry(
        id="q",
        preset="qwen",
        command="qwen",
        args=("--acp",),
        env={"A": "b"},
        cwd="/srv",
        permissions=AgentPermissions(deny=("delete",)),
        mode="plan",
        options={"model": "small"},
        auth_method="key",
    )
    launch = launch_of(entry)
    assert (launch.argv, launch.env, launch.kind) == (("qwen", "--acp"), {"A": "b"}, "acp")
    assert launch.permissions.deny == ("delete",)
    assert (launch.mode, launch.config_options) == ("plan", {"model": "small"})
    assert (launch.auth_method, launch.login, launch.cwd) == ("key", "qwen", None)
