"""Which agent gets a task: by request, by rule, by capability; and why the others do not."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from portico.agents.routing.quotas import OverQuota
from portico.agents.routing.routing import AgentCandidate, Routing, RoutingRequest, explain, route
from portico.core.config.agents_schema import AgentEntry, RoutingRule
from portico.core.config.routing_rules import read_rules
from portico.core.documents.problems import Report

STRATEGIES = ("priority", "round-robin", "least-used")
FREE_AT = 1_800_000_060.0


def agent(id: str, *types: str, **more: Any) -> AgentCandidate:
    """A candidate; `more` has keys of its entry, and of its state."""
    state = {key: more.pop(key) for key in list(more) if key in AgentCandidate.__struct_fields__}
    entry = AgentEntry(id=id, command=id, capabilities=types or ("code",), **more)
    return AgentCandidate(entry=entry, **state)


def over(id: str, free_at: float = FREE_AT) -> OverQuota:
    wait_s = free_at - 1_800_000_000
    limit = "requests_per_minute"
    return OverQuota(agent=id, limit=limit, allowed=1, used=1, free_at=free_at, wait_s=wait_s)


def rule(*preferred: str, **more: Any) -> RoutingRule:
    return RoutingRule(task_type=more.pop("task_type", "code"), preferred_agents=preferred, **more)


def request(prompt: str = "fix it", task_type: str = "code", agent_id: str = "") -> RoutingRequest:
    return RoutingRequest(task_type=task_type, prompt=prompt, agent_id=agent_id)


def chosen(
    *candidates: AgentCandidate, rules: tuple[RoutingRule, ...] = (), **more: Any
) -> Routing:
    strategy = more.pop("strategy", "priority")
    return route(request(**more), candidates, rules, strategy)


def test_the_agent_of_the_request_wins_over_rules_and_priority() -> None:
    found = chosen(agent("a"), agent("b", priority=9), rules=(rule("b"),), agent_id="a")
    assert (found.agent, found.via, found.waits) == ("a", "request", False)


@pytest.mark.parametrize(
    ("candidate", "error"),
    [
        (agent("a", enabled=False), "a is disabled: set enabled = true in its config to use it"),
        (agent("a", "docs"), "a does not accept tasks of type 'code': it accepts docs"),
        (agent("a", problem="it needs a login"), "a cannot run: it needs a login"),
        (agent("a", over=over("a")), str(over("a"))),
    ],
)
def test_an_agent_of_the_request_that_cannot_is_an_error_and_never_replaced(
    candidate: AgentCandidate, error: str
) -> None:
    found = chosen(candidate, agent("b"), agent_id="a")
    assert (found.agent, found.error) == ("", error)
    assert found.free_at == (FREE_AT if candidate.over else None)


def test_an_unknown_agent_of_the_request_is_an_error_with_the_nearest() -> None:
    assert chosen(agent("qwen"), agent_id="quen").error == (
        "there is no agent 'quen'; did you mean qwen?"
    )
    assert chosen(agent("a"), agent("b"), agent_id="xyz").error == (
        "there is no agent 'xyz'; choose from a, b"
    )
    assert chosen(agent_id="x").error == "there is no agent 'x'; no agent is configured"


def test_a_busy_agent_of_the_request_gets_the_task_once_it_has_room() -> None:
    found = chosen(agent("a", max_concurrent=1, running=1), agent("b"), agent_id="a")
    assert (found.agent, found.waits, found.error) == ("a", True, "")


def test_the_first_matching_rule_wins_over_the_priority_of_agents() -> None:
    rules = (
        rule("b", keywords=("test",)),
        rule("a", keywords=("fix",)),
        rule("c", keywords=("fix",), priority=3),
        rule("b", task_type="docs", priority=9),
    )
    agents = (agent("a", priority=9), agent("b"), agent("c"))
    found = chosen(*agents, rules=rules)
    assert (found.agent, found.via) == ("c", "rule 2")
    assert found.reason == "the prompt has the keyword 'fix'"
    assert chosen(*agents, rules=rules, prompt="tests").agent == "a"


def test_preferred_agents_are_tried_in_order_and_then_all_others() -> None:
    rules = (rule("a", "b"), rule("c", keywords=("fix",)))
    a, b, c, d = (agent(id) for id in "abcd")
    b, broken = replace(b, over=over("b")), replace(a, problem="no command")
    assert chosen(a, b, c, d, rules=rules).agent == "a"
    assert chosen(broken, b, c, d, rules=rules).agent == "c"
    found = chosen(broken, b, replace(c, problem="no login"), d, rules=rules)
    assert (found.agent, found.via) == ("d", "capability")
    assert [(one.agent, one.via, one.reason) for one in found.skipped] == [
        ("a", "rule 1", "a cannot run: no command"),
        ("b", "rule 1", str(over("b"))),
        ("c", "rule 2", "c cannot run: no login"),
    ]


def test_without_a_rule_the_capable_agent_with_the_highest_priority_wins() -> None:
    agents = (agent("a", "docs", priority=9), agent("b"), agent("c", "code", "docs", priority=5))
    assert chosen(*agents).agent == "c"
    assert chosen(*agents, task_type="docs").agent == "a"


@pytest.mark.parametrize(
    ("strategy", "expected"), [("priority", "a"), ("round-robin", "c"), ("least-used", "b")]
)
def test_the_strategy_decides_among_equals_only(strategy: str, expected: str) -> None:
    agents = (
        agent("low", prompts=0, last_prompt=None),
        agent("a", priority=1, prompts=5, last_prompt=30.0),
        agent("b", priority=1, prompts=1, last_prompt=20.0),
        agent("c", priority=1, prompts=3, last_prompt=10.0),
    )
    assert chosen(*agents, strategy=strategy).agent == expected


def test_an_agent_that_was_never_used_is_next_in_turn() -> None:
    agents = (agent("a", last_prompt=0.0), agent("b"))
    assert chosen(*agents, strategy="round-robin").agent == "b"


def test_a_busy_agent_is_skipped_and_waited_for_only_if_there_is_no_other() -> None:
    busy = agent("a", priority=9, max_concurrent=2, running=2)
    found = chosen(busy, agent("b"))
    assert (found.agent, found.waits) == ("b", False)
    assert [one.reason for one in found.skipped] == ["a is busy with 2 tasks, its limit"]
    found = chosen(busy, agent("b", problem="broken"))
    assert (found.agent, found.waits) == ("a", True)
    assert [one.agent for one in found.skipped] == ["b"]


def test_if_none_is_left_the_error_has_the_next_free_slot() -> None:
    found = chosen(
        agent("a", over=over("a", FREE_AT + 60)),
        agent("b", over=over("b", FREE_AT)),
        agent("c", over=over("c", FREE_AT - 60), problem="broken"),
    )
    assert (found.agent, found.free_at) == ("", FREE_AT)
    assert found.error == (
        f"no agent is available for a task of type 'code': {over('a', FREE_AT + 60)}; "
        f"{over('b')}; c cannot run: broken; "
        "the next slot is free in 60 s, at 2027-01-15T08:01:00Z"
    )


def test_a_type_that_no_agent_accepts_is_an_error_with_those_that_exist() -> None:
    agents = (agent("a", "docs", "code"), agent("b", "code"), agent("c", "secret", enabled=False))
    assert chosen(*agents, task_type="cod").error == (
        "no agent accepts tasks of type 'cod'; choose from docs, code"
    )
    assert chosen(task_type="x").error == (
        "no agent accepts tasks of type 'x'; no agent is enabled"
    )


def test_the_explanation_has_every_rule_and_every_agent_as_data() -> None:
    rules = (rule("b", keywords=("test",)), rule("a", priority=1), rule("c", task_type="docs"))
    found = explain(request(), (agent("a", problem="broken"), agent("b")), rules, "least-used")
    assert (found["agent"], found["via"], found["strategy"]) == ("b", "capability", "least-used")
    assert [(one["via"], one["matches"], one["reason"]) for one in found["rules"]] == [
        ("rule 1", True, "it has no keywords"),
        ("rule 2", False, "the prompt has none of its keywords: test"),
        ("rule 3", False, "it is for tasks of type 'docs'"),
    ]
    assert list(found["skipped"]) == [
        {"agent": "a", "via": "rule 1", "reason": "a cannot run: broken"}
    ]


IDS = ["a", "b", "c", "d"]
TYPES = ["code", "docs"]
WORDS = ["fix", "test", "the bug"]


@st.composite
def _candidates(draw: st.DrawFn) -> list[AgentCandidate]:
    ids = draw(st.lists(st.sampled_from(IDS), unique=True))
    return [
        agent(
            id,
            *draw(st.lists(st.sampled_from(TYPES), min_size=1, unique=True)),
            enabled=draw(st.sampled_from([True, True, False])),
            priority=draw(st.integers(0, 2)),
            max_concurrent=draw(st.none() | st.integers(1, 2)),
            running=draw(st.integers(0, 2)),
            problem=draw(st.sampled_from(["", "", "broken"])),
            over=draw(st.sampled_from([None, None, over(id)])),
            prompts=draw(st.integers(0, 3)),
            last_prompt=draw(st.none() | st.floats(0, 9)),
        )
        for id in ids
    ]


_rules = st.lists(
    st.builds(
        RoutingRule,
        task_type=st.sampled_from(TYPES),
        keywords=st.lists(st.sampled_from(WORDS), max_size=2).map(tuple),
        preferred_agents=st.lists(st.sampled_from(IDS), max_size=3).map(tuple),
        priority=st.integers(0, 2),
    ),
    max_size=4,
)
_requests = st.builds(
    RoutingRequest,
    task_type=st.sampled_from([*TYPES, "none"]),
    prompt=st.lists(st.sampled_from([*WORDS, "x"])).map(" ".join),
    agent_id=st.sampled_from(["", "", *IDS, "unknown"]),
)
_strategies = st.sampled_from(STRATEGIES)


def can(candidate: AgentCandidate, task_type: str) -> bool:
    """True if an agent may get a task, perhaps later."""
    entry = candidate.entry
    is_able = entry.enabled and task_type in entry.capabilities
    return is_able and candidate.over is None and not candidate.problem


@given(_requests, _candidates(), _rules, _strategies)
def test_the_chosen_agent_exists_is_able_and_within_quota(
    given: RoutingRequest, candidates: list[AgentCandidate], rules: list[RoutingRule], strategy: str
) -> None:
    found = route(given, candidates, rules, strategy)
    by_id = {one.entry.id: one for one in candidates}
    if not found.agent:
        assert found.error
        possible = [one for one in candidates if can(one, given.task_type)]
        assert not [one for one in possible if given.agent_id in ("", one.entry.id)]
        return
    assert found.error == ""
    assert can(by_id[found.agent], given.task_type)
    assert found.waits is by_id[found.agent].is_busy
    assert given.agent_id in ("", found.agent)
    assert found.agent not in {one.agent for one in found.skipped}
    if found.waits and not given.agent_id:
        assert all(one.is_busy for one in candidates if can(one, given.task_type))


@given(_requests, _candidates(), _rules, _strategies)
def test_the_same_state_always_gives_the_same_choice(
    given: RoutingRequest, candidates: list[AgentCandidate], rules: list[RoutingRule], strategy: str
) -> None:
    first = route(given, candidates, rules, strategy)
    assert route(given, list(candidates), list(rules), strategy) == first
    # An explanation is the choice itself, and not a second way to make it.
    explained = explain(given, candidates, rules, strategy)
    assert (explained["agent"], explained["error"]) == (first.agent, first.error)


@given(_requests, _candidates(), _strategies)
def test_without_rules_no_free_agent_of_a_higher_priority_is_passed_over(
    given: RoutingRequest, candidates: list[AgentCandidate], strategy: str
) -> None:
    found = route(replace(given, agent_id=""), candidates, (), strategy)
    ranks = {one.entry.id: one.entry.priority for one in candidates}
    higher = [one for one in candidates if one.entry.priority > ranks.get(found.agent, -1)]
    able = [one for one in higher if can(one, given.task_type)]
    assert not [one for one in able if found.waits or not one.is_busy]


@given(_requests, _candidates(), _rules, _strategies)
def test_a_rule_that_does_not_match_changes_nothing(
    given: RoutingRequest, candidates: list[AgentCandidate], rules: list[RoutingRule], strategy: str
) -> None:
    matching = [one for one in rules if one.matches(given.task_type, given.prompt)]
    found = route(given, candidates, rules, strategy)
    only = route(given, candidates, matching, strategy)
    assert (found.agent, found.waits, found.error) == (only.agent, only.waits, only.error)


@given(_requests, _candidates(), _rules, _strategies)
def test_a_rule_that_the_config_rejects_as_unreachable_would_change_nothing(
    given: RoutingRequest, candidates: list[AgentCandidate], rules: list[RoutingRule], strategy: str
) -> None:
    report = Report()
    data = [{**asdict(one), "keywords": list(one.keywords)} for one in rules]
    for one in data:
        one["preferred_agents"] = list(one["preferred_agents"])
    read_rules(report, {"rules": data}, {})
    unreachable = {one.at[2] for one in report.problems if "never reached" in one.what}
    kept = [one for number, one in enumerate(rules) if number not in unreachable]
    found, without = (route(given, candidates, some, strategy) for some in (rules, kept))
    assert (found.agent, found.waits, found.error) == (without.agent, without.waits, without.error)
