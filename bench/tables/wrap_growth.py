"""How the cost of proxies grows: from 1 to 64 clients, and from 50 to 6,000 tools."""

import time
from contextlib import ExitStack

from bench.contenders import (
    UPSTREAM_HTTP,
    WEB_FLOOR,
    WEB_PROXIES,
    WEB_WRAP_MODERN,
)
from bench.process import MB, Workspace
from bench.report import Budget, Section, Table, at_most
from bench.rounds import Samples, interleaved
from bench.scale import Scale
from bench.tables.wrap_clients import drive
from bench.tables.wrap_drive import ProxyWeb, note, present, started_web
from bench.web import Post
from bench.workload import WrongAnswer

_CLIENTS = (1, 8, 64)
_TOOLS = (50, 6000)
_UPSTREAMS = "upstreams at 64"
_KB = 1000
_SLOW_S = 0.05
_CONNECTIONS = 8
_GROWING = tuple(c for c in WEB_PROXIES if c not in (UPSTREAM_HTTP, WEB_FLOOR))


def measure(scale: Scale, section: Section) -> None:
    """Both kinds of growth."""
    samples = Samples()
    _clients(scale, samples, section.notes)
    _tools(scale, samples, section.notes)
    section.tables += [_clients_table(samples), _tools_table(samples)]
    section.budgets += _budgets(samples)


def _clients(scale: Scale, samples: Samples, notes: list[str]) -> None:
    """A fresh proxy every round, with more and more clients that all call."""
    with Workspace() as workspace:
        contenders = list(present(_GROWING, notes))
        for contender in interleaved(contenders, min(scale.rounds, 3)):
            server = ProxyWeb(contender, workspace)
            with server.process:
                try:
                    server.open()
                    _grow(server, scale.web_seconds, samples)
                except WrongAnswer as wrong:
                    note(notes, f"{contender.name} over HTTP left out: {wrong}")


def _grow(server: ProxyWeb, seconds: float, samples: Samples) -> None:
    name = server.contender.name
    posts = [server.call_post()]
    for clients in _CLIENTS:
        posts += [server.join() for _ in range(clients - len(posts))]
        samples.add(name, _cpu(clients), drive(server, posts, seconds))
        samples.add(name, _rss(clients), server.process.memory().rss / MB)
    samples.add(name, _UPSTREAMS, server.process.upstreams())


def _tools(scale: Scale, samples: Samples, notes: list[str]) -> None:
    with Workspace() as workspace, ExitStack() as stack:
        few, many = (started_web(_GROWING, workspace, tools, stack, notes) for tools in _TOOLS)
        large = {server.contender: server for server in many}
        pairs = [(small, large[small.contender]) for small in few if small.contender in large]
        for pair in interleaved(pairs, scale.rounds):
            for server, tools in zip(pair, _TOOLS, strict=True):
                post = server.list_post()
                try:
                    cpu_us = _list(server, post, scale.web_seconds)
                except WrongAnswer as wrong:
                    note(notes, f"{server.contender.name}, {tools:,} tools: {wrong}")
                else:
                    kilobytes = server.size(post) / _KB
                    samples.add(server.contender.name, _per_kb(tools), cpu_us / kilobytes)


def _list(server: ProxyWeb, post: Post, seconds: int) -> float:
    """CPU us a list; wrk would count what a slow one has begun, but not what it has ended."""
    started = time.monotonic()
    server.ask(post)
    if time.monotonic() - started < _SLOW_S:
        return server.load(post, seconds, _CONNECTIONS).cpu_us
    before, started, count = server.process.cpu_s(), time.monotonic(), 0
    while count == 0 or time.monotonic() - started < seconds:
        server.ask(post)
        count += 1
    return (server.process.cpu_s() - before) / count * 1e6


def _cpu(clients: int) -> str:
    return f"call CPU us, {clients}"


def _rss(clients: int) -> str:
    return f"RSS MB, {clients}"


def _per_kb(tools: int) -> str:
    return f"us a KB, {tools:,}"


def _clients_table(samples: Samples) -> Table:
    columns = [*map(_cpu, _CLIENTS), _rss(_CLIENTS[0]), _rss(_CLIENTS[-1]), _UPSTREAMS]
    rows = [[c.name, *(samples.cell(c.name, column) for column in columns)] for c in _GROWING]
    return Table("HTTP to a stdio upstream: calls of 1 to 64 clients", ("", *columns), rows)


def _tools_table(samples: Samples) -> Table:
    columns = [*map(_per_kb, _TOOLS)]
    rows = []
    for contender in _GROWING:
        cells = [samples.cell(contender.name, column, "{:,.2f}".format) for column in columns]
        growth = _growth(samples, contender.name)
        rows.append([contender.name, *cells, "-" if growth is None else f"{growth:.2f}"])
    columns.append("6,000 beside 50")
    return Table("HTTP to a stdio upstream: CPU of a list by its size", ("", *columns), rows)


def _growth(samples: Samples, name: str) -> float | None:
    few, many = (samples.median(name, _per_kb(tools)) for tools in _TOOLS)
    return None if few is None or many is None else many / few


def _budgets(samples: Samples) -> list[Budget]:
    growth = _growth(samples, WEB_WRAP_MODERN.name)
    return [at_most("wrap, cached list over HTTP, CPU a byte: 6,000 beside 50", growth, 1.2, "x")]
