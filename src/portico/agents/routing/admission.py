"""Chooses the agent of a prompt and counts the prompt, although others do so at the same time."""

import secrets
from collections.abc import Mapping

from msgspec.structs import asdict, replace

from portico.agents.routing.availability import candidates
from portico.agents.routing.quotas import AgentQuotas
from portico.agents.routing.routing import Routing, RoutingRequest, route
from portico.core.config.agents_schema import AgentsConfig

_NO_COUNTS: Mapping[str, int] = {}
_NO_TEXTS: Mapping[str, str] = {}
_MAX_ATTEMPTS = 10


class Admission(Routing, frozen=True, kw_only=True):
    """The agent of a prompt that is counted."""

    key: str
    """With it the quotas take the prompt back."""


async def admit(
    request: RoutingRequest,
    config: AgentsConfig,
    quotas: AgentQuotas,
    running: Mapping[str, int] = _NO_COUNTS,
    failures: Mapping[str, str] = _NO_TEXTS,
    chosen: Routing | None = None,
) -> Routing:
    """Choose an agent whose prompt starts now; count the prompt unless the agent is busy. `chosen`
    is a choice that was made with the same state.

    Another process may take the last slot of the chosen agent first. Then the choice is made again,
    with the quotas as they are by then.
    """
    attempts = _MAX_ATTEMPTS + len(config.entries)
    while True:
        if chosen is None:
            found = await candidates(config, quotas, running, failures)
            chosen = route(request, found, config.rules, config.defaults.strategy)
        if not chosen.agent or chosen.waits:
            return chosen
        key = secrets.token_hex(8)
        over = await quotas.start(chosen.agent, config.entries[chosen.agent].rate_limit, key)
        if over is None:
            return Admission(**asdict(chosen), key=key)
        attempts -= 1
        if not attempts:  # slots became free and were taken again, each time
            return replace(chosen, agent="", reason="", error=str(over), free_at=over.free_at)
        chosen = None
