"""The page of metrics for Prometheus, rendered by `prometheus-client`."""

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, Metric, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from portico.library.observe.delegation_metrics import DelegationMetrics
    from portico.library.observe.metrics import Histogram, Metrics

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4.encode()
STATES = (
    "active",
    "connected",
    "connecting",
    "installing",
    "waiting to install",
    "idle",
    "login",
    "failing",
    "failed",
    "stopped",
    "in process",
)


class GatewayCollector(Collector):
    """A snapshot of all counters and of the state of all servers."""

    def __init__(
        self,
        metrics: "Metrics",
        status: Mapping[str, Any],
        delegations: "DelegationMetrics | None" = None,
        windows: Mapping[str, int] | None = None,
    ) -> None:
        """`windows` is the number of windows of each client that has a name."""
        gateway, servers = status["gateway"], status["servers"]
        calls, tasks = _calls(metrics), _tasks(metrics, gateway)
        agents = () if delegations is None else _agents(delegations)
        of_gateway = [*_gateway(gateway), *_windows(windows or {})]
        self._families = [*calls, *tasks, *agents, *of_gateway, *_upstreams(servers)]

    def collect(self) -> list[Metric]:
        """Return all families, in the order of the page."""
        return self._families

    def page(self) -> bytes:
        """Render the page; safe in any thread."""
        return generate_latest(self)


def _calls(metrics: "Metrics") -> Iterator[Metric]:
    about = "Finished calls, by outcome."
    calls = CounterMetricFamily("portico_calls", about, labels=("server", "tool", "outcome"))
    about = "Duration of calls, by tool."
    tools = SummaryMetricFamily("portico_tool_seconds", about, labels=("server", "tool"))
    for tool, series in metrics.tools.items():
        tools.add_metric(tool, series.count, series.sum)
        for outcome, count in series.outcomes.items():
            if count:
                calls.add_metric((*tool, outcome), count)
    about = "Duration of calls, by server."
    servers = HistogramMetricFamily("portico_call_seconds", about, labels=("server",))
    for server, times in metrics.servers.items():
        servers.add_metric((server,), _buckets(times), times.sum)
    yield from (calls, servers, tools)
    searches = metrics.searches
    about = "Tool searches by clients."
    yield CounterMetricFamily("portico_search", about, sum(searches.counts))
    about = "Duration of tool searches."
    yield HistogramMetricFamily("portico_search_seconds", about, _buckets(searches), searches.sum)


def _tasks(metrics: "Metrics", gateway: Mapping[str, Any]) -> Iterator[Metric]:
    about = "Tasks that were created, and that have finished, by state."
    tasks = CounterMetricFamily("portico_tasks", about, labels=("kind", "state"))
    for kind, count in metrics.tasks.items():
        tasks.add_metric(kind, count)
    yield tasks
    about = "Tasks that are running."
    yield GaugeMetricFamily("portico_tasks_running", about, gateway.get("tasks_running", 0))


def _agents(delegations: "DelegationMetrics") -> Iterator[Metric]:
    about = "Delegated tasks that have ended, by outcome."
    tasks = CounterMetricFamily("portico_agent_tasks", about, labels=("agent", "outcome"))
    for labels, count in delegations.tasks.items():
        tasks.add_metric(labels, count)
    about = "Permission requests of agents, by decision."
    asked = CounterMetricFamily("portico_agent_permissions", about, labels=("agent", "decision"))
    for labels, count in delegations.permissions.items():
        asked.add_metric(labels, count)
    about = "Tokens that agents reported."
    tokens = CounterMetricFamily("portico_agent_tokens", about, labels=("agent",))
    for agent, count in delegations.tokens.items():
        tokens.add_metric((agent,), count)
    about = "Cost that agents reported."
    cost = CounterMetricFamily("portico_agent_cost", about, labels=("agent", "currency"))
    for labels, amount in delegations.cost.items():
        cost.add_metric(labels, amount)
    about = "Duration of the stages of delegated tasks."
    times = HistogramMetricFamily("portico_agent_seconds", about, labels=("agent", "stage"))
    for labels, histogram in delegations.times.items():
        times.add_metric(labels, _buckets(histogram), histogram.sum)
    yield from (tasks, asked, tokens, cost, times)


def _buckets(times: "Histogram") -> list[tuple[str, float]]:
    bounds = [*(f"{bound:g}" for bound in times.buckets), "+Inf"]
    return list(zip(bounds, accumulate(times.counts), strict=True))


def _windows(windows: Mapping[str, int]) -> Iterator[Metric]:
    about = "Windows of clients that were started with a name."
    family = GaugeMetricFamily("portico_windows", about, labels=("client",))
    for client, count in windows.items():
        family.add_metric((client,), count)
    yield family


def _gateway(gateway: Mapping[str, Any]) -> Iterator[Metric]:
    build = {"version": gateway["version"], "python": platform.python_version()}
    yield InfoMetricFamily("portico_build", "Versions of Portico and Python.", build)
    about = "Time since the gateway started."
    yield GaugeMetricFamily("portico_uptime_seconds", about, gateway["uptime_s"])
    about = "Tools of all servers."
    yield GaugeMetricFamily("portico_catalog_tools", about, gateway["tools"])
    cache = gateway["search"].get("cache", {})
    for name, about in (
        ("hits", "Searches answered from the cache."),
        ("misses", "Searches not found in the cache."),
    ):
        if name in cache:
            yield CounterMetricFamily(f"portico_search_cache_{name}", about, cache[name])


def _upstreams(servers: Iterable[Mapping[str, Any]]) -> Iterator[Metric]:
    about = "1 for the current state of a server, else 0."
    states = GaugeMetricFamily("portico_upstream_state", about, labels=("server", "state"))
    for one in servers:
        for state in STATES:
            states.add_metric((one["server"], state), state == one["state"])
    yield states
    for kind, name, about, value in _UPSTREAM:
        family = kind(f"portico_upstream_{name}", about, labels=("server",))
        for one in servers:
            if (now := value(one)) is not None:
                family.add_metric((one["server"],), now)
        yield family


_Family = type[CounterMetricFamily] | type[GaugeMetricFamily]
_UPSTREAM: tuple[tuple[_Family, str, str, Callable[[Mapping[str, Any]], float | None]], ...] = (
    (CounterMetricFamily, "starts", "Starts of a server.", lambda one: one["starts"]),
    (GaugeMetricFamily, "tools", "Tools of a server.", lambda one: one["tools"]),
    (
        GaugeMetricFamily,
        "catalog_age_seconds",
        "Age of the catalog of a server.",
        lambda one: one["age_s"],
    ),
    (
        GaugeMetricFamily,
        "breaker_open",
        "1 while the circuit breaker of a server is open.",
        lambda one: one["breaker"] == "open",
    ),
    (
        GaugeMetricFamily,
        "calls_under_way",
        "Pending calls of a server.",
        lambda one: sum(connection["busy"] for connection in one["connections"]),
    ),
)
