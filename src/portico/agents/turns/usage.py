"""Tokens and cost of a turn, from every place where agents report them."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from portico.agents.turns.lenient import amount, fields, items

_NAMES = {
    "input_tokens": ("inputTokens", "input_tokens", "promptTokenCount", "prompt_tokens"),
    "output_tokens": (
        "outputTokens",
        "output_tokens",
        "candidatesTokenCount",
        "completion_tokens",
    ),
    "total_tokens": ("totalTokens", "total_tokens", "totalTokenCount"),
    "thought_tokens": ("thoughtTokens", "thought_tokens", "thoughtsTokenCount"),
    "cached_read_tokens": ("cachedReadTokens", "cached_tokens", "cachedContentTokenCount"),
    "cached_write_tokens": ("cachedWriteTokens",),
}
"""Each count, and its names in the reports of agents."""

Counts = dict[str, int]


class AgentUsage(Struct, frozen=True, kw_only=True):
    """The tokens and the cost of a turn. None is unknown, which is not 0."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    thought_tokens: int | None = None
    cached_read_tokens: int | None = None
    cached_write_tokens: int | None = None
    context_used: int | None = None
    """The tokens in the context of the session."""
    context_size: int | None = None
    cost: float | None = None
    """Of this turn."""
    session_cost: float | None = None
    """Of the whole session so far."""
    currency: str = ""

    @property
    def tokens(self) -> int | None:
        """All tokens of the turn."""
        if self.total_tokens is not None:
            return self.total_tokens
        if self.input_tokens is None and self.output_tokens is None:
            return None
        return (self.input_tokens or 0) + (self.output_tokens or 0)


class UsageReports:
    """Collects the reports of one turn."""

    def __init__(self, is_new_session: bool) -> None:
        self._chunks: Counts = {}
        self._context: dict[str, int] = {}
        self._cost: float | None = None
        self._currency = ""
        # A session's cost is cumulative, so a new session begins with none.
        self._cost_before: float | None = 0.0 if is_new_session else None

    def begin(self) -> None:
        """The prompt is sent: costs reported until now are not of this turn."""
        if self._cost is not None:
            self._cost_before = self._cost

    def update(self, update: Mapping[str, Any]) -> None:
        """Take the content of a `usage_update`."""
        for name, key in (("context_used", "used"), ("context_size", "size")):
            value = amount(update.get(key))
            if value is not None:
                self._context[name] = int(value)
        cost = fields(update.get("cost"))
        value = amount(cost.get("amount"))
        if value is not None:
            self._cost = float(value)
            self._currency = str(cost.get("currency") or "")[:16]

    def chunk(self, meta: Mapping[str, Any]) -> None:
        """Take the `_meta` of a chunk: one report for each request to the model, to be added."""
        for name, value in counts_in(fields(meta.get("usage"))).items():
            self._chunks[name] = self._chunks.get(name, 0) + value

    def result(self, result: Mapping[str, Any]) -> AgentUsage:
        """Return the usage of the turn that ended with this result."""
        # The most direct report wins; adding several would count the same tokens twice.
        quota = fields(fields(result.get("_meta")).get("quota"))
        counts = (
            counts_in(fields(result.get("usage")))
            or counts_in(fields(quota.get("token_count")))
            or _model_counts(quota)
            or self._chunks
        )
        cost = None
        if self._cost is not None and self._cost_before is not None:
            cost = max(0.0, self._cost - self._cost_before)
        return AgentUsage(
            **counts,
            **self._context,
            cost=cost,
            session_cost=self._cost,
            currency=self._currency,
        )


def counts_in(report: Mapping[str, Any]) -> Counts:
    """Return the counts that a report has."""
    found: Counts = {}
    for name, keys in _NAMES.items():
        value = next((v for v in (amount(report.get(key)) for key in keys) if v is not None), None)
        if value is not None:
            found[name] = int(value)
    return found


def usage_of(counts: Mapping[str, Any]) -> AgentUsage:
    """Return the usage with these counts."""
    return AgentUsage(**counts)


def _model_counts(quota: Mapping[str, Any]) -> Counts:
    """Return the sum over the models of a turn."""
    total: Counts = {}
    for model in items(quota.get("model_usage")):
        for name, value in counts_in(fields(fields(model).get("token_count"))).items():
            total[name] = total.get(name, 0) + value
    return total
