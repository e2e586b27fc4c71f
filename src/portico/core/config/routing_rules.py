"""Reads the routing rules, and rejects those that could never choose an agent."""

from collections.abc import Mapping, Sequence
from typing import Any

from portico.core.config.agents_schema import AgentEntry, RoutingRule
from portico.core.config.values import any_value, read_table, readers, table_list
from portico.core.documents.problems import Path, Report, quoted

_AT: Path = ("routing", "rules")
_RULE = readers(RoutingRule)
MAX_RULES = 200
_MAX_KEYWORDS = 100
_Placed = tuple[Path, RoutingRule]


def read_rules(
    report: Report, value: Any, agents: Mapping[str, AgentEntry]
) -> tuple[RoutingRule, ...]:
    """Read `[routing]`; return its rules in the order in which they are tried."""
    rules = read_table(report, _AT[:1], value, {"rules": any_value}).get("rules", [])
    if isinstance(rules, list) and len(rules) > MAX_RULES:
        report.wrong(_AT, f"has more than {MAX_RULES} rules", "merge some of them")
        rules = []
    placed: list[_Placed] = []
    for number, table in enumerate(table_list(report, _AT, rules)):
        at = (*_AT, number)
        before = len(report.problems)
        found = read_table(report, at, table, _RULE)
        if len(report.problems) == before:
            _check_complete(report, at, found)
        if len(report.problems) == before:
            placed.append((at, RoutingRule(**found)))
    placed.sort(key=lambda one: -one[1].priority)
    for at, rule in placed:
        _check_agents(report, at, rule, agents)
    _check_reachable(report, placed)
    return tuple(rule for _, rule in placed)


def _check_complete(report: Report, at: Path, found: dict[str, Any]) -> None:
    if "task_type" not in found:
        report.wrong(at, "has no task_type", "add the type of task that the rule is for")
    if not found.get("preferred_agents"):
        report.wrong(at, "has no preferred_agents, so it chooses nothing", "add one, or remove it")
    if len(found.get("keywords", ())) > _MAX_KEYWORDS:
        what = f"has more than {_MAX_KEYWORDS} keywords"
        report.wrong((*at, "keywords"), what, "make several rules of it")


def _check_agents(
    report: Report, at: Path, rule: RoutingRule, agents: Mapping[str, AgentEntry]
) -> None:
    for number, id in enumerate(rule.preferred_agents):
        place = (*at, "preferred_agents", number)
        agent = agents.get(id)
        if agent is None:
            what = f"there is no agent {quoted(id)}"
            report.wrong(place, what, report.suggest(id, agents))
        elif not agent.accepts(rule.task_type):
            what = f"{quoted(id)} does not have the capability {quoted(rule.task_type)}"
            report.wrong(place, what, "add it to the agent's capabilities, or remove the agent")


def _check_reachable(report: Report, placed: Sequence[_Placed]) -> None:
    """Reject a rule whose agents were all tried before, for every prompt that it matches."""
    for number, (at, rule) in enumerate(placed):
        earlier = [one for _, one in placed[:number] if one.task_type == rule.task_type]
        cases: Sequence[str | None] = rule.keywords or (None,)
        if all(_tried(earlier, case).issuperset(rule.preferred_agents) for case in cases):
            what = "is never reached: the rules before it try the same agents for every prompt"
            report.wrong(at, what, "remove it, or raise its priority")


def _tried(earlier: Sequence[RoutingRule], keyword: str | None) -> set[str]:
    """The agents that earlier rules try for every prompt with this keyword, or for any prompt."""
    return {
        id
        for rule in earlier
        if not rule.keywords or (keyword is not None and rule.keyword_in(keyword) is not None)
        for id in rule.preferred_agents
    }
