"""The page of metrics: every line as Prometheus wants it, every series once, bounded."""

import re
from pathlib import Path
from typing import Any

import pytest

from portico.core.model.message import Meta
from portico.library.observe import metrics as module
from portico.library.observe.journal import CallNote
from portico.library.observe.metrics import Metrics
from portico.library.observe.prometheus import STATES, GatewayCollector
from tests.gateway.observed import Gateway

CALL, READ = "tools/call", "resources/read"


def call(method: str, server: str, name: str, outcome: str, took_s: float) -> CallNote:
    return CallNote(0.0, method, b"", 0, Meta(), None, server, name, outcome, took_s)


_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|\})')
_SUFFIXES = {
    "counter": ("",),
    "gauge": ("",),
    "histogram": ("_bucket", "_sum", "_count"),
    "summary": ("_sum", "_count"),
}
_UNESCAPED = {r"\\": "\\", r"\"": '"', r"\n": "\n"}

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parsed(page: bytes) -> Series:
    """All samples; anything that Prometheus would not take fails the test."""
    text = page.decode()
    assert text.endswith("\n")
    found: Series = {}
    helped: set[str] = set()
    kinds: dict[str, str] = {}
    family = ""
    for line in text.split("\n")[:-1]:
        if line.startswith("# HELP "):
            family = line.split(" ")[2]
            assert family not in helped, line
            helped.add(family)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == family, f"{line} does not follow its HELP"
            assert name not in kinds, line
            kinds[name] = kind
        else:
            name, labels, value = _sample(line)
            assert name in [family + suffix for suffix in _SUFFIXES[kinds[family]]], line
            assert kinds[family] != "counter" or name.endswith("_total"), line
            assert (name, labels) not in found, f"{line} is there twice"
            found[name, labels] = value
    return found


def _sample(line: str) -> tuple[str, frozenset[tuple[str, str]], float]:
    match = _NAME.match(line)
    assert match, line
    at = match.end()
    labels: dict[str, str] = {}
    if line[at] == "{":
        end = ","
        at += 1
        while end == ",":
            pair = _LABEL.match(line, at)
            assert pair, line
            name, value, end = pair.groups()
            assert name not in labels, line
            labels[name] = re.sub(r'\\["\\n]', lambda found: _UNESCAPED[found[0]], value)
            at = pair.end()
    assert line[at] == " ", line
    return match[0], frozenset(labels.items()), float(line[at + 1 :])


def status(*servers: dict[str, Any], **search: Any) -> dict[str, Any]:
    gateway = {"version": "1.2", "tools": 7, "uptime_s": 3.5, "search": search}
    return {"gateway": gateway, "servers": list(servers)}


def server(name: str, **more: Any) -> dict[str, Any]:
    told = {"breaker": "closed", "starts": 2, "tools": 5, "age_s": 9.5, "state": "idle"}
    return {"server": name, **told, "connections": [{"busy": 3}, {"busy": 1}], **more}


def value(found: Series, name: str, **labels: str) -> float:
    return found[f"portico_{name}", frozenset(labels.items())]


def test_calls_count_by_server_tool_and_outcome() -> None:
    metrics = Metrics()
    for outcome in ("ok", "ok", "tool-error", "error -32603", "error 5", "cancelled"):
        metrics.record_call(call(CALL, "maths", "add", outcome, 0.02))
    metrics.record_call(call(READ, "db", "db://secret", "ok", 0.5))
    page = GatewayCollector(metrics, status()).page()
    found = parsed(page)
    counts = {
        outcome: value(found, "calls_total", server="maths", tool="add", outcome=outcome)
        for outcome in ("ok", "tool-error", "error", "cancelled")
    }
    assert counts == {"ok": 2, "tool-error": 1, "error": 2, "cancelled": 1}
    assert value(found, "calls_total", server="db", tool="resources/read", outcome="ok") == 1
    assert value(found, "tool_seconds_count", server="maths", tool="add") == 6
    assert value(found, "tool_seconds_sum", server="maths", tool="add") == pytest.approx(0.12)
    assert b"secret" not in page


def test_a_histogram_counts_what_took_up_to_so_long() -> None:
    metrics = Metrics()
    for took_s in (0.005, 0.006, 1.0, 500.0):
        metrics.record_call(call(CALL, "maths", "add", "ok", took_s))
    found = parsed(GatewayCollector(metrics, status()).page())
    below = {
        le: value(found, "call_seconds_bucket", server="maths", le=le)
        for le in ("0.005", "0.01", "0.5", "1", "120", "+Inf")
    }
    assert below == {"0.005": 1, "0.01": 2, "0.5": 2, "1": 3, "120": 3, "+Inf": 4}
    assert value(found, "call_seconds_count", server="maths") == 4
    assert value(found, "call_seconds_sum", server="maths") == pytest.approx(501.011)


def test_searches_are_counted_apart() -> None:
    metrics = Metrics()
    metrics.record_call(call(CALL, "", "search_tools", "ok", 0.002))
    found = parsed(GatewayCollector(metrics, status(cache={"hits": 4, "misses": 2})).page())
    assert value(found, "search_total") == 1
    assert value(found, "search_seconds_bucket", le="0.0025") == 1
    assert value(found, "calls_total", server="", tool="search_tools", outcome="ok") == 1
    assert value(found, "search_cache_hits_total") == 4
    assert value(found, "search_cache_misses_total") == 2


def test_each_server_is_told_of_in_the_state_it_is_in() -> None:
    servers = (server("a"), server("b", state="failing", breaker="open", age_s=None))
    found = parsed(GatewayCollector(Metrics(), status(*servers)).page())
    on = {
        (name, state)
        for name in ("a", "b")
        for state in STATES
        if value(found, "upstream_state", server=name, state=state)
    }
    assert on == {("a", "idle"), ("b", "failing")}
    assert value(found, "upstream_breaker_open", server="b") == 1
    assert value(found, "upstream_starts_total", server="a") == 2
    assert value(found, "upstream_tools", server="a") == 5
    assert value(found, "upstream_calls_under_way", server="a") == 4
    assert value(found, "upstream_catalog_age_seconds", server="a") == 9.5
    assert ("portico_upstream_catalog_age_seconds", frozenset({("server", "b")})) not in found
    assert (value(found, "catalog_tools"), value(found, "uptime_seconds")) == (7, 3.5)


def test_names_from_outside_are_escaped_and_cannot_make_a_series_twice() -> None:
    metrics = Metrics()
    strange = 'a"b\\n\\c\nportico_calls_total{} 99\u2028\x1b'
    for tool in (strange, "half \ud800", "half \ud801", "x" * 500 + "1", "x" * 500 + "2"):
        metrics.record_call(call(CALL, "maths", tool, "ok", 0.1))
    found = parsed(GatewayCollector(metrics, status()).page())
    assert value(found, "calls_total", server="maths", tool=strange, outcome="ok") == 1
    assert value(found, "calls_total", server="maths", tool="half ?", outcome="ok") == 2
    assert value(found, "calls_total", server="maths", tool="x" * 200, outcome="ok") == 2


def test_more_tools_than_are_told_apart_count_as_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TOOLS", 5)
    metrics = Metrics()
    for number in range(12):
        metrics.record_call(call(CALL, "maths", f"tool{number}", "ok", 0.1))
    found = parsed(GatewayCollector(metrics, status()).page())
    assert value(found, "calls_total", server="maths", tool="other", outcome="ok") == 7
    assert value(found, "call_seconds_count", server="maths") == 12
    assert sum(name == "portico_tool_seconds_count" for name, _ in found) == 6


def test_a_page_shows_what_was_counted_when_it_was_asked_for() -> None:
    metrics = Metrics()
    metrics.record_call(call(CALL, "maths", "add", "ok", 0.1))
    figures = GatewayCollector(metrics, status())
    metrics.record_call(call(CALL, "maths", "add", "ok", 0.1))
    metrics.record_call(call(CALL, "other", "new", "ok", 0.1))
    found = parsed(figures.page())
    assert value(found, "calls_total", server="maths", tool="add", outcome="ok") == 1
    assert sum(name == "portico_calls_total" for name, _ in found) == 1


@pytest.mark.slow
def test_a_gateway_shows_its_page_to_who_has_the_token(tmp_path: Path) -> None:
    with Gateway(tmp_path, "--http", "127.0.0.1:0") as gateway:
        gateway.call("execute_tool", name="maths__add", arguments={"a": 1, "b": 2})
        gateway.call("execute_tool", name="maths__fail", arguments={})
        gateway.call("search_tools", query="add numbers")
        gateway.call("add", path="/servers/maths/mcp", a=3)
        assert gateway.get("/metrics", token="")[0] == 401
        assert gateway.get("/healthz", token="")[0] == 200
        assert gateway.get("/metrics", method="POST")[0] == 405
        code, content_type, page = gateway.get("/metrics")
    assert (code, content_type) == (200, "text/plain; version=0.0.4; charset=utf-8")
    found = parsed(page)
    assert value(found, "calls_total", server="maths", tool="add", outcome="ok") == 2
    assert value(found, "calls_total", server="maths", tool="fail", outcome="tool-error") == 1
    assert value(found, "search_total") == 1
    assert value(found, "upstream_tools", server="maths") == 3
    assert value(found, "upstream_starts_total", server="maths") >= 1
