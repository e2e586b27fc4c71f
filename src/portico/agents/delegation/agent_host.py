"""The agents of one process: their slots, warm processes, quotas and failures."""

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from portico.agents.delegation.agent_slots import AgentSlots
from portico.agents.routing.admission import Admission, admit
from portico.agents.routing.availability import candidates_of, to_json
from portico.agents.routing.routing import Routing, RoutingRequest, route
from portico.agents.turns.delegation import TurnOutcome, launch_of
from portico.agents.turns.warm_pool import WarmPool
from portico.core.config.agents_schema import AgentEntry, AgentsConfig
from portico.core.state.background import Background
from portico.core.state.store_error import StoreError
from portico.library.observe.delegation_metrics import DelegationMetrics, DelegationNote

if TYPE_CHECKING:
    from portico.agents.routing.quotas import AgentQuotas
    from portico.agents.turns.acp_connection import AcpConnection

_REST_S = 60.0
"""How long an agent that failed to start is not chosen again."""


class _RoutingState(NamedTuple):
    """All in this process that the choice of an agent depends on."""

    config: AgentsConfig
    running: Mapping[str, int]
    problems: Mapping[str, str]
    admitted: int


class _Routed(NamedTuple):
    """The latest choice of an agent for a prompt that is not admitted yet."""

    request: RoutingRequest
    chosen: Routing
    state: _RoutingState


class AgentHost:
    """The state of all agents in this process."""

    def __init__(
        self, config: AgentsConfig, quotas: "Callable[[], AgentQuotas]", folder: str
    ) -> None:
        """`quotas` is called when they are first needed; `folder` is the state folder."""
        self.config = config
        self._folder = folder
        self._open_quotas = quotas
        self.slots = AgentSlots(
            self._admit, self.refund, lambda: self.config.defaults.max_concurrent
        )
        self._failures: dict[str, tuple[float, str]] = {}
        self._routed: _Routed | None = None
        self._pools: dict[str, WarmPool] = {}
        self.metrics = DelegationMetrics()
        self.endings = Background()
        """The processes of finished turns, while they end."""

    @cached_property
    def quotas(self) -> "AgentQuotas":
        """The quotas and totals of all agents."""
        return self._open_quotas()

    def start(self) -> None:
        """Start the warm processes that are kept at all times."""
        for entry in self.config.entries.values():
            if entry.enabled and entry.kind == "acp" and entry.pool.min and not entry.problem:
                self._pool(entry).start()

    async def apply(self, config: AgentsConfig) -> None:
        """Use a changed config; running turns finish with the old one."""
        before, self.config = self.config, config
        for id in [*self._pools]:
            if config.entries.get(id) != before.entries.get(id):
                await self._pools.pop(id).close()
        self._failures.clear()
        self.start()
        await self.slots.advance()

    def admitted(
        self, request: RoutingRequest, wait: Callable[[str], Any]
    ) -> AbstractAsyncContextManager[Routing]:
        """Choose the agent of a prompt, and count it while it runs. `wait` is awaited with the
        reason if the prompt cannot start yet."""
        return self.slots.taken(request, wait)

    async def _admit(self, request: RoutingRequest) -> Routing:
        # A person may have repaired an agent that the request names.
        problems = {} if request.agent_id else {**self._problems(), **request.tried}
        known, self._routed = self._routed, None
        is_same = known is not None and known[::2] == (request, self._state())
        chosen = known.chosen if known is not None and is_same else None
        return await admit(request, self.config, self.quotas, self.slots.running, problems, chosen)

    async def route(self, request: RoutingRequest) -> Routing:
        """Choose the agent of a prompt without counting it; its admission need not choose again as
        long as nothing has changed. An agent that is busy, or failed to start, may still get it."""
        state, config = self._state(), self.config
        statuses = await self.quotas.status(config.rate_limits)
        problems = {} if request.agent_id else self._problems()
        found = candidates_of(config, statuses, self.slots.running, problems)
        chosen = route(request, found, config.rules, config.defaults.strategy)
        if chosen.agent:
            self._routed = _Routed(request, chosen, state)
            return chosen
        found = candidates_of(config, statuses)
        return route(request, found, config.rules, config.defaults.strategy)

    def _state(self) -> _RoutingState:
        running = {id: count for id, count in self.slots.running.items() if count}
        return _RoutingState(self.config, running, self._problems(), self.slots.admitted)

    async def refund(self, routing: Routing) -> None:
        """Do not count a prompt that was not sent."""
        if isinstance(routing, Admission):
            with suppress(StoreError):  # one prompt too many is counted
                await self.quotas.refund(routing.agent, routing.key)

    def _problems(self) -> dict[str, str]:
        now = asyncio.get_running_loop().time()
        return {id: why for id, (until, why) in self._failures.items() if until > now}

    def failed(self, agent: str, why: str) -> None:
        """Do not choose an agent for a while: it could not be started."""
        self._failures[agent] = (asyncio.get_running_loop().time() + _REST_S, why)

    def take_warm(self, entry: AgentEntry, folder: str) -> "AcpConnection | None":
        """Return a warm process of an agent for a task in this folder; None if there is none."""
        if entry.kind != "acp" or not entry.pool.max:
            return None
        return self._pool(entry).take(folder)

    def keep_slot(self, agent: str, ending: Background) -> None:
        """Keep the slot of a finished turn until its process has ended."""
        if ending:
            self.slots.running[agent] += 1
            self.endings.start(self._free_slot(agent, ending))

    async def _free_slot(self, agent: str, ending: Background) -> None:
        await ending.wait()
        self.slots.running[agent] -= 1
        await self.slots.advance()

    def _pool(self, entry: AgentEntry) -> WarmPool:
        pool = self._pools.get(entry.id)
        if pool is None:
            home = os.path.join(os.path.realpath(self._folder), "agents")
            pool = self._pools[entry.id] = WarmPool(launch_of(entry), entry.pool, home)
        return pool

    async def finished(
        self, task: str, agent: str, outcome: str, turn: TurnOutcome, queue_s: float
    ) -> None:
        """Count the end of a task, which waited this long for its agent."""
        usage, timings = turn.usage, turn.timings
        seconds = {
            "queue": queue_s,
            "start": timings.start_s,
            "first_update": timings.first_update_s,
            "turn": timings.turn_s,
        }
        await self.quotas.finish(task, agent, outcome, usage, seconds, turn.permissions)
        self.metrics.record(
            DelegationNote(
                agent=agent,
                outcome=outcome,
                seconds=seconds,
                permissions=turn.permissions,
                tokens=usage.tokens,
                cost=usage.cost,
                currency=usage.currency,
            )
        )

    async def status(self) -> list[dict[str, Any]]:
        """Return all agents with their availability, quota, tasks and totals."""
        statuses = await self.quotas.status(self.config.rate_limits)
        totals = await self.quotas.totals()
        found = candidates_of(self.config, statuses, self.slots.running, self._problems())
        return [
            {**to_json(one, statuses[one.entry.id], totals.get(one.entry.id)), **self._warm(one)}
            for one in found
        ]

    def _warm(self, candidate: Any) -> dict[str, Any]:
        pool = self._pools.get(candidate.entry.id)
        return {} if pool is None else {"warm": pool.status.ready}

    async def close(self) -> None:
        """End all warm processes, and wait for those of finished turns."""
        await asyncio.gather(*(pool.close() for pool in self._pools.values()))
        await self.endings.wait(10.0)
        if "quotas" in self.__dict__:
            await self.quotas.close()
