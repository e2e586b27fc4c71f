"""A page in Prometheus' text format: https://prometheus.io/docs/instrumenting/exposition_formats/."""

import platform
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from portico.gateway.metrics import Metrics, Times

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
STATES = ("active", "connected", "connecting", "idle", "failing", "failed", "stopped", "in process")

_Labels = tuple[tuple[str, str], ...]
_Sample = tuple[str, _Labels, float]
"""What follows the family's name, the labels, the value."""


def page(metrics: "Metrics", status: Mapping[str, Any]) -> bytes:
    """All that is counted and all that is so now."""
    lines: list[str] = []
    for name, kind, about, samples in (*_calls(metrics), *_house(status), *_upstreams(status)):
        lines += (f"# HELP portico_{name} {about}", f"# TYPE portico_{name} {kind}")
        for suffix, labels, value in samples:
            lines.append(f"portico_{name}{suffix}{_labelled(labels)} {_number(value)}")
    lines.append("")
    return "\n".join(lines).encode(errors="replace")


_Family = tuple[str, str, str, Iterable[_Sample]]


def _calls(metrics: "Metrics") -> Iterator[_Family]:
    tools = {_tool(*key): series for key, series in metrics.tools.items()}
    yield (
        "calls_total",
        "counter",
        "Calls that are over, by how they went.",
        (
            ("", (*labels, ("outcome", outcome)), count)
            for labels, series in tools.items()
            for outcome, count in series.outcomes.items()
            if count
        ),
    )
    yield (
        "call_seconds",
        "histogram",
        "How long calls took, by server.",
        (
            sample
            for server, times in metrics.servers.items()
            for sample in _histogram((("server", server),), times)
        ),
    )
    yield (
        "tool_seconds",
        "summary",
        "How long calls took, by tool.",
        (
            sample
            for labels, series in tools.items()
            for sample in (("_sum", labels, series.sum), ("_count", labels, series.count))
        ),
    )
    searches = metrics.searches
    yield (
        "search_total",
        "counter",
        "Searches for tools that clients made.",
        [("", (), sum(searches.counts))],
    )
    yield (
        "search_seconds",
        "histogram",
        "How long searches for tools took.",
        _histogram((), searches),
    )


def _house(status: Mapping[str, Any]) -> Iterator[_Family]:
    gateway = status["gateway"]
    build = (("version", gateway["version"]), ("python", platform.python_version()))
    yield "build_info", "gauge", "Which Portico this is.", [("", build, 1)]
    uptime = [("", (), gateway["uptime_s"])]
    yield "uptime_seconds", "gauge", "How long the gateway has been there.", uptime
    tools = [("", (), gateway["tools"])]
    yield "catalog_tools", "gauge", "Tools of all servers together.", tools
    cache = gateway["search"].get("cache", {})
    for name, about in (
        ("hits", "Searches answered from memory."),
        ("misses", "Searches that had to be made."),
    ):
        if name in cache:
            yield f"search_cache_{name}_total", "counter", about, [("", (), cache[name])]


def _upstreams(status: Mapping[str, Any]) -> Iterator[_Family]:
    servers = [((("server", str(one["server"])),), one) for one in status["servers"]]
    yield (
        "upstream_state",
        "gauge",
        "1 for the state that a server is in.",
        [
            ("", (*labels, ("state", state)), int(state == one["state"]))
            for labels, one in servers
            for state in STATES
        ],
    )
    for name, kind, about, key in _UPSTREAM:
        samples = [("", labels, one[key]) for labels, one in servers if one[key] is not None]
        yield name, kind, about, samples
    yield (
        "upstream_breaker_open",
        "gauge",
        "1 while calls fail at once, since the server failed again and again.",
        [("", labels, int(one["breaker"] == "open")) for labels, one in servers],
    )
    yield (
        "upstream_calls_under_way",
        "gauge",
        "Calls that a server has not answered yet.",
        [("", labels, _busy(one["connections"])) for labels, one in servers],
    )


_UPSTREAM = (
    ("upstream_starts_total", "counter", "How often a server was started.", "starts"),
    ("upstream_tools", "gauge", "Tools of a server.", "tools"),
    (
        "upstream_catalog_age_seconds",
        "gauge",
        "How long ago a server said what it offers.",
        "age_s",
    ),
)


def _busy(connections: Iterable[Mapping[str, Any]]) -> int:
    return sum(connection["busy"] for connection in connections)


def _tool(server: str, tool: str) -> _Labels:
    return (("server", server), ("tool", tool))


def _histogram(labels: _Labels, times: "Times") -> Iterator[_Sample]:
    bounds = [*(f"{bound:g}" for bound in times.buckets), "+Inf"]
    counts = list(accumulate(times.counts))
    for bound, count in zip(bounds, counts, strict=True):
        yield "_bucket", (*labels, ("le", bound)), count
    yield "_sum", labels, times.sum
    yield "_count", labels, counts[-1]


def _labelled(labels: _Labels) -> str:
    if not labels:
        return ""
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels)
    return f"{{{pairs}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))
