"""The totals of each agent: tasks, stages and permissions; tokens and cost, if reported."""

import sqlite3
from collections.abc import Mapping

from msgspec import Struct, field

from portico.agents.routing import quota_rows as rows


class AgentTotals(Struct, frozen=True, kw_only=True):
    """The tasks and the usage of an agent, since it was first used."""

    tasks: Mapping[str, int] = field(default_factory=dict)
    """By outcome."""
    tokens: int | None = None
    """None if no task reported them, which is not 0."""
    tasks_with_tokens: int = 0
    """The number of tasks that reported them; the tokens of other tasks are unknown."""
    cost: Mapping[str, float] | None = None
    """By currency, which is empty if the agent does not name it."""
    tasks_with_cost: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    """By stage, the mean time that it took."""
    permissions: Mapping[str, int] = field(default_factory=dict)
    """By decision, the permission requests."""


_Units = dict[str, tuple[float, int]]
"""By unit, a total and the number of tasks in it."""


def totals_in(db: sqlite3.Connection) -> dict[str, AgentTotals]:
    """Read the totals of all agents."""
    tasks: dict[str, dict[str, int]] = {}
    for agent, outcome, count in rows.outcomes(db):
        tasks.setdefault(agent, {})[outcome] = count
    units: dict[str, _Units] = {}
    for agent, unit, amount, count in rows.amounts(db):
        units.setdefault(agent, {})[unit] = amount, count
    return {agent: _totals(found, units.get(agent, {})) for agent, found in tasks.items()}


def _totals(tasks: Mapping[str, int], units: _Units) -> AgentTotals:
    tokens, costs = units.get(rows.TOKENS), _named(units, rows.COST)
    stages, permissions = _named(units, rows.STAGE), _named(units, rows.PERMISSION)
    return AgentTotals(
        tasks=tasks,
        tokens=None if tokens is None else int(tokens[0]),
        tasks_with_tokens=0 if tokens is None else tokens[1],
        cost={name: amount for name, (amount, _) in costs.items()} or None,
        tasks_with_cost=sum(count for _, count in costs.values()),
        seconds={stage: round(total / count, 3) for stage, (total, count) in stages.items()},
        permissions={decision: int(count) for decision, (count, _) in permissions.items()},
    )


def _named(units: _Units, prefix: str) -> _Units:
    """Return the units with a prefix, by the rest of their names."""
    return {unit.removeprefix(prefix): units[unit] for unit in units if unit.startswith(prefix)}
