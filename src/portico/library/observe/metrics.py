"""Counters of the calls through a gateway."""

from bisect import bisect_left
from collections import Counter

from portico.library.observe.journal import CallNote
from portico.library.observe.observing import CANCELLED, ERROR, OK, TOOL_ERROR

CALL_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
SEARCH_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
OUTCOMES = (OK, TOOL_ERROR, ERROR, CANCELLED)
MAX_TOOLS = 2_000
OTHER = "other"
"""The label of all tools beyond `MAX_TOOLS`: clients choose the names, so they are limited."""
_MAX_NAME = 200


class Histogram:
    """The durations of calls, counted by bucket."""

    __slots__ = ("buckets", "counts", "sum")

    def __init__(self, buckets: tuple[float, ...]) -> None:
        self.buckets = buckets
        self.counts = [0] * (len(buckets) + 1)
        self.sum = 0.0


class ToolSeries:
    """The calls of one tool."""

    __slots__ = ("count", "outcomes", "sum", "times")

    def __init__(self, times: Histogram) -> None:
        self.outcomes = dict.fromkeys(OUTCOMES, 0)
        self.count = 0
        self.sum = 0.0
        self.times = times


class Metrics:
    """Counters of one gateway."""

    def __init__(self, search: str = "search_tools") -> None:
        """`search` is the tool with a histogram of its own: it is much faster than others."""
        self._search = search
        self.tools: dict[tuple[str, str], ToolSeries] = {}
        """By server and tool, under their labels."""
        self.servers: dict[str, Histogram] = {}
        self.searches = Histogram(SEARCH_BUCKETS)
        self._known: dict[tuple[str, str], ToolSeries] = {}
        self.tasks: Counter[tuple[str, str]] = Counter()
        """By kind and state, the tasks that were created and finished."""

    def record_task(self, kind: str, state: str) -> None:
        """Count a task that was created or has finished."""
        self.tasks[kind, state] += 1

    def record_call(self, call: CallNote) -> None:
        """Count a finished call; other than tools, by method: the number of URIs has no limit."""
        server, outcome, took_s = call.server, call.outcome, call.took_s
        tool = call.name if call.method == "tools/call" else call.method
        series = self._known.get((server, tool))
        if series is None:
            series = self._begin(server, tool)
        outcomes = series.outcomes
        outcomes[outcome if outcome in outcomes else ERROR] += 1
        series.count += 1
        series.sum += took_s
        times = series.times
        times.counts[bisect_left(times.buckets, took_s)] += 1
        times.sum += took_s

    def _begin(self, server: str, tool: str) -> ToolSeries:
        if len(self._known) >= MAX_TOOLS:
            return self._series(server, OTHER)
        shown = tool[:_MAX_NAME].encode(errors="replace").decode()
        series = self._known[server, tool] = self._series(server, shown)
        return series

    def _series(self, server: str, tool: str) -> ToolSeries:
        series = self.tools.get((server, tool))
        if series is None:
            series = self.tools[server, tool] = ToolSeries(self._times(server, tool))
        return series

    def _times(self, server: str, tool: str) -> Histogram:
        if not server and tool == self._search:
            return self.searches
        times = self.servers.get(server)
        if times is None:
            times = self.servers[server] = Histogram(CALL_BUCKETS)
        return times
