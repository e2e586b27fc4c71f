"""Proxies over HTTP: lists, calls and memory."""

from collections.abc import Callable
from contextlib import ExitStack

from bench.contenders import WEB_PROXIES, WEB_WRAP, WEB_WRAP_MODERN
from bench.process import MB, Workspace
from bench.report import Budget, Section, Table, at_most
from bench.rounds import Samples, interleaved
from bench.scale import Scale
from bench.tables.wrap_drive import ProxyWeb, note, started_web
from bench.web import Post
from bench.workload import WrongAnswer

_RSS, _LIST, _CALL = "RSS MB", "list CPU us", "call CPU us"
_RATE = "calls/s, 32 in flight"
_COLUMNS = (_LIST, _CALL, _RSS, _RATE)
_CONNECTIONS = 8
_IN_FLIGHT = 32
_WARM = 20


def measure(scale: Scale, section: Section) -> None:
    """Cost of every proxy with 50 tools."""
    samples = Samples()
    with Workspace() as workspace, ExitStack() as stack:
        servers = started_web(WEB_PROXIES, workspace, 50, stack, section.notes)
        for server in servers:
            for _ in range(_WARM):
                server.check_call()
                server.ask(server.list_post())
        for work, rounds in _WORKS:
            for server in interleaved(servers, rounds or scale.rounds):
                try:
                    work(server, scale.web_seconds, samples)
                except WrongAnswer as wrong:
                    note(section.notes, f"{server.contender.name} over HTTP: {wrong}")
    section.tables.append(_table(samples))
    section.budgets += _budgets(samples)
    section.notes += [f"noisy: {noise} (HTTP)" for noise in samples.noisy()]


def _list(server: ProxyWeb, seconds: int, samples: Samples) -> None:
    _load(server, server.list_post(), seconds, _LIST, samples)


def _call(server: ProxyWeb, seconds: int, samples: Samples) -> None:
    _load(server, server.call_post(), seconds, _CALL, samples)


def _load(server: ProxyWeb, post: Post, seconds: int, column: str, samples: Samples) -> None:
    load = server.load(post, seconds, _CONNECTIONS)
    samples.add(server.contender.name, column, load.cpu_us)


def _many(server: ProxyWeb, seconds: int, samples: Samples) -> None:
    load = server.load(server.call_post(), seconds, _IN_FLIGHT)
    samples.add(server.contender.name, _RATE, load.requests / load.seconds)


def _weigh(server: ProxyWeb, seconds: int, samples: Samples) -> None:
    samples.add(server.contender.name, _RSS, server.process.memory().rss / MB)


_Work = Callable[[ProxyWeb, int, Samples], None]
_WORKS: list[tuple[_Work, int]] = [(_list, 0), (_call, 0), (_many, 0), (_weigh, 1)]
"""The measurements, and their number of rounds where the scale does not set it."""


def _table(samples: Samples) -> Table:
    rows = [[c.name, *(samples.cell(c.name, column) for column in _COLUMNS)] for c in WEB_PROXIES]
    return Table("HTTP to a stdio upstream of 50 tools, after load", ("", *_COLUMNS), rows)


def _budgets(samples: Samples) -> list[Budget]:
    return [
        at_most(
            f"wrap, call from HTTP to stdio: CPU ({contender.name})",
            samples.median(contender.name, _CALL),
            150,
            " us",
            samples.best(contender.name, _CALL),
        )
        for contender in (WEB_WRAP_MODERN, WEB_WRAP)
    ]
