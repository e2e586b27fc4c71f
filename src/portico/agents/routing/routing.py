"""Chooses the agent of a task: a pure function of the request, the agents and the rules.

1. The agent that the request names, or an error: never another one.
2. The preferred agents of each rule that matches, in order; rules by priority.
3. All agents with the capability, by priority; among equals, by the strategy.

The first that can start at once gets the task. If there is none, the first that is only busy gets
it, and the task waits.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, to_builtins

from portico.agents.routing.quotas import OverQuota, slot
from portico.core.config.agents_schema import AgentEntry, RoutingRule
from portico.core.model.wording import close_matches, did_you_mean

BY_REQUEST, BY_CAPABILITY = "request", "capability"
_MAX_KEYWORD = 60


class RoutingRequest(Struct, frozen=True, kw_only=True):
    """The part of a delegation that decides about its agent."""

    task_type: str
    prompt: str
    agent_id: str = ""
    """The agent that the client requires; empty for any."""
    tried: Mapping[str, str] = {}
    """By agent, why it could not begin this task."""


class AgentCandidate(Struct, frozen=True, kw_only=True):
    """An agent and its present state."""

    entry: AgentEntry
    problem: str = ""
    """Why it cannot run; empty if it can."""
    over: OverQuota | None = None
    running: int = 0
    """Its tasks in progress."""
    prompts: int = 0
    """In the last 24 hours."""
    last_prompt: float | None = None
    """When its latest prompt started; None for long ago."""

    @property
    def is_busy(self) -> bool:
        """True if it has as many tasks as it may."""
        limit = self.entry.max_concurrent
        return limit is not None and self.running >= limit

    def refusal(self, task_type: str) -> str:
        """Why it cannot get a task of this type, even if the task waits; empty if it can."""
        entry = self.entry
        if not entry.enabled:
            return f"{entry.id} is disabled: set enabled = true in its config to use it"
        if not entry.accepts(task_type):
            types = ", ".join(entry.capabilities)
            return f"{entry.id} does not accept tasks of type {task_type!r}: it accepts {types}"
        if self.problem:
            return f"{entry.id} cannot run: {self.problem}"
        return "" if self.over is None else str(self.over)


class SkippedAgent(Struct, frozen=True):
    """An agent that was considered, and why it did not get the task."""

    agent: str
    via: str
    reason: str


class MatchedRule(Struct, frozen=True, kw_only=True):
    """A rule, and whether it is for the task."""

    via: str
    """Its number in the order in which rules are tried, such as `rule 1`."""
    task_type: str
    keywords: tuple[str, ...]
    preferred_agents: tuple[str, ...]
    priority: int
    matches: bool
    reason: str


class Routing(Struct, frozen=True, kw_only=True):
    """The chosen agent, or the reason why there is none."""

    agent: str = ""
    """Its id; empty if there is none."""
    via: str = ""
    """`request`, `rule N` or `capability`."""
    waits: bool = False
    """True if the agent is busy, so that the task waits for it."""
    reason: str = ""
    error: str = ""
    free_at: float | None = None
    """When the next slot is free, by the wall clock, if only quotas forbid the task."""
    skipped: tuple[SkippedAgent, ...] = ()
    rules: tuple[MatchedRule, ...] = ()


def route(
    request: RoutingRequest,
    candidates: Sequence[AgentCandidate],
    rules: Sequence[RoutingRule],
    strategy: str = "priority",
) -> Routing:
    """Choose the agent of a task; the order of candidates decides among equals."""
    agents = {one.entry.id: one for one in candidates}
    if request.agent_id:
        return _requested(request, agents)
    ordered = sorted(rules, key=lambda rule: -rule.priority)
    traces = tuple(_trace(number, rule, request) for number, rule in enumerate(ordered, 1))
    return _first(request, agents, _in_order(request, agents, traces, strategy), traces)


def explain(
    request: RoutingRequest,
    candidates: Sequence[AgentCandidate],
    rules: Sequence[RoutingRule],
    strategy: str = "priority",
) -> dict[str, Any]:
    """Return the choice and its full reasoning as data."""
    found = to_builtins(route(request, candidates, rules, strategy))
    return {"task_type": request.task_type, "strategy": strategy, **found}


def _requested(request: RoutingRequest, agents: Mapping[str, AgentCandidate]) -> Routing:
    id = request.agent_id
    candidate = agents.get(id)
    if candidate is None:
        return Routing(via=BY_REQUEST, error=unknown_agent(id, agents))
    refusal = candidate.refusal(request.task_type)
    if refusal:
        free_at = _free_at(candidate)
        return Routing(via=BY_REQUEST, error=refusal, free_at=free_at)
    return _chosen(candidate, BY_REQUEST, "the request names it")


def unknown_agent(id: str, agents: Collection[str]) -> str:
    """Return the message about an agent that does not exist."""
    hint = did_you_mean(close_matches(id[:_MAX_KEYWORD], agents))
    others = f"choose from {', '.join(agents)}" if agents else "no agent is configured"
    return f"there is no agent {id[:_MAX_KEYWORD]!r}; {hint or others}"


def _trace(number: int, rule: RoutingRule, request: RoutingRequest) -> MatchedRule:
    keyword = None
    if rule.task_type != request.task_type:
        reason = f"it is for tasks of type {rule.task_type!r}"
    else:
        keyword = rule.keyword_in(request.prompt)
        if keyword is None:
            reason = f"the prompt has none of its keywords: {', '.join(rule.keywords)}"
        else:
            reason = f"the prompt has the keyword {keyword!r}" if keyword else "it has no keywords"
    return MatchedRule(
        via=f"rule {number}",
        task_type=rule.task_type,
        keywords=rule.keywords,
        preferred_agents=rule.preferred_agents,
        priority=rule.priority,
        matches=keyword is not None,
        reason=reason,
    )


def _in_order(
    request: RoutingRequest,
    agents: Mapping[str, AgentCandidate],
    traces: Sequence[MatchedRule],
    strategy: str,
) -> Iterator[tuple[str, str, str]]:
    """Each agent to consider, with the step that names it and the reason."""
    for trace in traces:
        if trace.matches:
            for id in trace.preferred_agents:
                yield id, trace.via, trace.reason
    capable = [one for one in agents.values() if one.entry.accepts(request.task_type)]
    key = _STRATEGIES[strategy]
    capable.sort(key=lambda one: (-one.entry.priority, key(one)))
    for one in capable:
        yield one.entry.id, BY_CAPABILITY, f"it has the capability {request.task_type!r}"


# The sort is stable, so the order of the config decides in the end.
_STRATEGIES: Mapping[str, Callable[[AgentCandidate], float]] = {
    "priority": lambda _: 0.0,
    "round-robin": lambda one: float("-inf") if one.last_prompt is None else one.last_prompt,
    "least-used": lambda one: float(one.prompts),
}


def _first(
    request: RoutingRequest,
    agents: Mapping[str, AgentCandidate],
    order: Iterator[tuple[str, str, str]],
    traces: tuple[MatchedRule, ...],
) -> Routing:
    """Return the first agent that can start, or else the first that is only busy."""
    skipped: dict[str, SkippedAgent] = {}
    waiting: tuple[AgentCandidate, str, str] | None = None
    for id, via, reason in order:
        if id in skipped:
            continue
        candidate = agents.get(id)
        refusal = unknown_agent(id, agents) if candidate is None else ""
        if candidate is not None:
            refusal = candidate.refusal(request.task_type)
            if not refusal and not candidate.is_busy:
                return _chosen(candidate, via, reason, tuple(skipped.values()), traces)
            if not refusal:
                waiting = waiting or (candidate, via, reason)
                refusal = f"{id} is busy with {candidate.running} tasks, its limit"
        skipped[id] = SkippedAgent(id, via, refusal)
    if waiting is not None:
        others = tuple(one for one in skipped.values() if one.agent != waiting[0].entry.id)
        return _chosen(*waiting, others, traces)
    return _none(request, agents, tuple(skipped.values()), traces)


def _chosen(
    candidate: AgentCandidate,
    via: str,
    reason: str,
    skipped: tuple[SkippedAgent, ...] = (),
    traces: tuple[MatchedRule, ...] = (),
) -> Routing:
    return Routing(
        agent=candidate.entry.id,
        via=via,
        waits=candidate.is_busy,
        reason=reason,
        skipped=skipped,
        rules=traces,
    )


def _none(
    request: RoutingRequest,
    agents: Mapping[str, AgentCandidate],
    skipped: tuple[SkippedAgent, ...],
    traces: tuple[MatchedRule, ...],
) -> Routing:
    enabled = [one for one in agents.values() if one.entry.enabled]
    capable = [one for one in enabled if one.entry.accepts(request.task_type)]
    free_at: float | None = None
    if not capable:
        types = dict.fromkeys(type for one in enabled for type in one.entry.capabilities)
        hint = f"choose from {', '.join(types)}" if types else "no agent is enabled"
        error = f"no agent accepts tasks of type {request.task_type!r}; {hint}"
    else:
        reasons = "; ".join(one.reason for one in skipped if one.agent in agents)
        error = f"no agent is available for a task of type {request.task_type!r}: {reasons}"
        slots = [(at, one) for one in capable if (at := _free_at(one)) is not None]
        if slots:
            free_at, first = min(slots, key=lambda pair: pair[0])
            if first.over is not None and len(skipped) > 1:
                error += f"; {slot(free_at, first.over.wait_s)}"
    return Routing(error=error, free_at=free_at, skipped=skipped, rules=traces)


def _free_at(candidate: AgentCandidate) -> float | None:
    """When the agent can start a prompt again, if only a quota keeps it from that."""
    if candidate.over is None or candidate.problem or not candidate.entry.enabled:
        return None
    return candidate.over.free_at
