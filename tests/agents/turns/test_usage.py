"""Tokens and cost, from every place where agents report them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.agents.turns.usage import AgentUsage, UsageReports

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["usage", "_meta", "quota", "token_count", "inputTokens", "cost", "amount", "used"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.sampled_from(["usage", "_meta", "cost", "used", "size"]), JSON)


def reports(is_new: bool = True) -> UsageReports:
    return UsageReports(is_new)


def test_nothing_reported_is_unknown_and_not_zero() -> None:
    usage = reports().result({})
    assert usage == AgentUsage()
    assert usage.tokens is None
    assert usage.cost is None


def test_the_usage_of_the_response_wins_over_the_chunks() -> None:
    found = reports()
    found.chunk({"usage": {"inputTokens": 99, "outputTokens": 99}})
    counts = {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15, "thoughtTokens": None}
    usage = found.result({"usage": counts})
    assert (usage.input_tokens, usage.output_tokens, usage.tokens) == (10, 5, 15)
    assert usage.thought_tokens is None


def test_the_chunks_are_added_up() -> None:
    found = reports()
    for _ in range(3):
        found.chunk({"usage": {"inputTokens": 10, "outputTokens": 1, "cachedReadTokens": 4}})
    found.chunk({"usage": None})
    usage = found.result({"stopReason": "end_turn"})
    assert (usage.input_tokens, usage.output_tokens, usage.cached_read_tokens) == (30, 3, 12)
    assert usage.tokens == 33


@pytest.mark.parametrize(
    "quota",
    [
        {"token_count": {"input_tokens": 7, "output_tokens": 2}},
        {
            "model_usage": [
                {"model": "a", "token_count": {"input_tokens": 4, "output_tokens": 2}},
                {"model": "b", "token_count": {"input_tokens": 3}},
            ]
        },
    ],
)
def test_a_quota_in_the_meta_is_read(quota: dict[str, Any]) -> None:
    usage = reports().result({"_meta": {"quota": quota}})
    assert (usage.input_tokens, usage.output_tokens) == (7, 2)


def test_cost_and_context_come_from_updates() -> None:
    found = reports()
    found.update({"used": 100, "size": 1000, "cost": {"amount": 0.1, "currency": "USD"}})
    found.update({"used": 150, "size": 1000, "cost": {"amount": 0.25, "currency": "USD"}})
    usage = found.result({})
    assert (usage.context_used, usage.context_size) == (150, 1000)
    assert (usage.cost, usage.session_cost, usage.currency) == (0.25, 0.25, "USD")


def test_the_cost_of_a_continued_session_counts_from_its_last_report() -> None:
    found = reports(is_new=False)
    found.update({"used": 1, "size": 2, "cost": {"amount": 1.0, "currency": "USD"}})
    found.begin()
    found.update({"used": 1, "size": 2, "cost": {"amount": 1.5, "currency": "USD"}})
    assert found.result({}).cost == 0.5
    assert found.result({}).session_cost == 1.5


def test_the_cost_of_a_continued_session_without_an_earlier_report_is_unknown() -> None:
    found = reports(is_new=False)
    found.begin()
    found.update({"cost": {"amount": 1.5, "currency": "EUR"}})
    assert found.result({}).cost is None
    assert found.result({}).session_cost == 1.5


@given(OBJECTS, OBJECTS, OBJECTS)
def test_nonsense_never_fails_and_never_becomes_negative(
    update: dict[str, Any], meta: dict[str, Any], result: dict[str, Any]
) -> None:
    found = reports()
    found.update(update)
    found.chunk(meta)
    found.begin()
    usage = found.result(result)
    assert usage.tokens is None or usage.tokens >= 0
    assert usage.cost is None or usage.cost >= 0
