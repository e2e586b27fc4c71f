"""The present state of each configured agent, for routing and for people."""

import os
import shutil
from collections.abc import Mapping
from typing import Any

from msgspec import to_builtins

from portico.agents.routing.quotas import AgentQuotas, QuotaStatus
from portico.agents.routing.routing import AgentCandidate
from portico.agents.routing.usage_totals import AgentTotals
from portico.core.config.agents_schema import AgentEntry, AgentsConfig

_NO_COUNTS: Mapping[str, int] = {}
_NO_TEXTS: Mapping[str, str] = {}
_STAGES = {
    "queue": "waited",
    "start": "started in",
    "first_update": "was silent for",
    "turn": "worked",
}
"""The stages of a task, as verbs."""


async def candidates(
    config: AgentsConfig,
    quotas: AgentQuotas,
    running: Mapping[str, int] = _NO_COUNTS,
    failures: Mapping[str, str] = _NO_TEXTS,
) -> list[AgentCandidate]:
    """Return all agents with their state.

    `running` has the number of each agent's tasks, and `failures` what kept it from working when it
    was last used.
    """
    return candidates_of(config, await quotas.status(config.rate_limits), running, failures)


def candidates_of(
    config: AgentsConfig,
    statuses: Mapping[str, QuotaStatus],
    running: Mapping[str, int] = _NO_COUNTS,
    failures: Mapping[str, str] = _NO_TEXTS,
) -> list[AgentCandidate]:
    """Return all agents with their state, as their quotas were just now."""
    return [
        candidate(entry, statuses[id], running.get(id, 0), failures.get(id, ""))
        for id, entry in config.entries.items()
    ]


def candidate(
    entry: AgentEntry, status: QuotaStatus, running: int, failure: str = ""
) -> AgentCandidate:
    """Return one agent with its state."""
    return AgentCandidate(
        entry=entry,
        problem=problem(entry) or failure,
        over=status.over,
        running=running,
        prompts=status.prompts,
        last_prompt=status.last_prompt,
    )


def problem(entry: AgentEntry) -> str:
    """Why an enabled agent cannot be started: a missing value or command; empty if it can."""
    if not entry.enabled:
        return ""
    return entry.problem or _missing(entry)


def _missing(entry: AgentEntry) -> str:
    path = entry.env.get("PATH", os.environ.get("PATH"))
    if shutil.which(entry.command, path=path) is not None:
        return ""
    what = f"there is no command {entry.command!r}"
    preset = entry.known
    if preset is None or entry.command != preset.command:
        return f"{what}; install it, or correct its command in the config"
    former = next((name for name in preset.former if shutil.which(name, path=path)), None)
    if former is not None:
        return f"{what}, only {former!r}, its former name; install {preset.package}"
    return f"{what}; install it with `npm install -g {preset.package}`"


def state_of(candidate: AgentCandidate) -> str:
    """One word for an agent's state."""
    if not candidate.entry.enabled:
        return "disabled"
    if candidate.problem:
        return "unavailable"
    if candidate.over is not None:
        return "over quota"
    return "busy" if candidate.is_busy else "ready"


def averages(totals: Mapping[str, Any]) -> list[str]:
    """Return the mean times and the permission requests of an agent, for people and models."""
    times = [f"{_STAGES[stage]} {took_s:g} s" for stage, took_s in totals["seconds"].items()]
    asked = [f"{count} {decision}" for decision, count in totals["permissions"].items()]
    return [
        *([f"on average {', '.join(times)}"] if times else []),
        *([f"permissions: {', '.join(asked).replace('_', ' ')}"] if asked else []),
    ]


def to_json(
    candidate: AgentCandidate, status: QuotaStatus, totals: AgentTotals | None
) -> dict[str, Any]:
    """Return all that is known about an agent, without its arguments and variables."""
    entry = candidate.entry
    limits = [{**to_builtins(one), "left": one.left} for one in status.limits]
    return {
        "id": entry.id,
        "name": entry.title,
        "description": entry.description,
        "kind": entry.kind,
        "supervised": entry.is_supervised,
        "unsupervised_because": entry.unsupervised_because,
        "state": state_of(candidate),
        "reason": candidate.problem or ("" if candidate.over is None else str(candidate.over)),
        "capabilities": list(entry.capabilities),
        "priority": entry.priority,
        "running": candidate.running,
        "max_concurrent": entry.max_concurrent,
        "quota": limits,
        "free_at": None if candidate.over is None else candidate.over.free_at,
        "prompts_24h": candidate.prompts,
        "totals": to_builtins(totals or AgentTotals()),
    }
