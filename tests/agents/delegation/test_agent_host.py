"""The slot of a turn is held until its process has ended."""

import asyncio
from pathlib import Path
from typing import Any

from portico.agents.delegation.agent_host import AgentHost
from portico.agents.routing.quotas import quotas_in_memory
from portico.agents.routing.routing import RoutingRequest
from portico.core.config.agents_schema import AgentEntry, AgentsConfig
from portico.core.state.background import Background
from tests.support.backoff import until

REQUEST = RoutingRequest(task_type="code", prompt="fix it")


async def _ignore(_: str) -> None:
    """A reason to wait."""


async def test_the_next_task_waits_for_the_end_of_the_process_before_it(tmp_path: Path) -> None:
    entry = AgentEntry(id="a", command="/bin/sh", capabilities=("code",), max_concurrent=1)
    host = AgentHost(AgentsConfig(entries={"a": entry}), quotas_in_memory, str(tmp_path))
    end, ending = asyncio.Event(), Background()
    async with host.admitted(REQUEST, _ignore):
        ending.start(_until(end))
        host.keep_slot("a", ending)
    waiting: asyncio.Future[Any] = asyncio.ensure_future(_taken(host))
    await until(lambda: host.slots.claimable() > host.config.defaults.max_concurrent)
    assert host.slots.running["a"] == 1
    end.set()
    await waiting
    assert host.slots.running["a"] == 0
    await host.close()


async def _until(event: asyncio.Event) -> None:
    await event.wait()


async def _taken(host: AgentHost) -> None:
    async with host.admitted(REQUEST, _ignore) as routing:
        assert routing.agent == "a"
