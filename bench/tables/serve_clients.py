"""Many clients of one gateway over HTTP, all calling at once."""

from collections import Counter
from contextlib import ExitStack

from bench.contenders import WEB_FASTMCP, WEB_WRAP, WEB_WRAP_MODERN
from bench.gateway import Fleet
from bench.process import MB
from bench.report import Budget, Section, Table, at_most
from bench.rounds import Samples, interleaved
from bench.scale import Scale
from bench.tables.serve_calls import gateways, named
from bench.tables.wrap_drive import ProxyWeb, note, started_web
from bench.workload import WrongAnswer

CLIENTS = 64
_TIMES = 3
"""As long as usual: the slowest need that to answer each client once."""
_RATE, _CPU, _RSS = "calls/s", "CPU us a call", "RSS MB after"
_COLUMNS = (_RATE, _CPU, _RSS)
_PEERS = (WEB_WRAP_MODERN, WEB_WRAP, WEB_FASTMCP)


def measure(fleet: Fleet, scale: Scale, section: Section) -> None:
    """Each client has a connection of its own, and a session where there are sessions."""
    samples, failed = Samples(), Counter[str]()
    with ExitStack() as stack:
        own = gateways(fleet, stack)
        peers = started_web(_PEERS, fleet.workspace, 50, stack, section.notes)
        names: list[tuple[str, ProxyWeb]] = [(server.contender.name, server) for server in own]
        names += [(named(peer.contender), peer) for peer in peers]
        crowds = [(name, server, _sessions(server)) for name, server in names]
        for name, server, sessions in interleaved(crowds, scale.rounds):
            try:
                load = server.load(
                    server.call_post(), _TIMES * scale.web_seconds, CLIENTS, sessions
                )
            except WrongAnswer as wrong:
                note(section.notes, f"{name}, {CLIENTS} clients: {wrong}")
                failed[name] += 1
                continue
            samples.add(name, _RATE, load.requests / load.seconds)
            samples.add(name, _CPU, load.cpu_us)
            samples.add(name, _RSS, server.process.memory().rss / MB)
    section.tables.append(_table([name for name, _ in names], samples, failed))
    section.budgets += [_budget(server.contender.name, failed) for server in own]
    section.notes += [f"noisy: {noise} ({CLIENTS} clients)" for noise in samples.noisy()]


def _sessions(server: ProxyWeb) -> list[str]:
    """The ids of as many sessions as there are clients; none in the modern era."""
    posts = [server.join() for _ in range(CLIENTS)]
    return [post.headers[_ID] for post in posts if _ID in post.headers]


_ID = "Mcp-Session-Id"


def _table(names: list[str], samples: Samples, failed: Counter[str]) -> Table:
    rows = []
    for name in names:
        cells = [samples.cell(name, column) for column in _COLUMNS]
        rows.append([name, *cells, str(failed[name])])
    return Table(f"{CLIENTS} clients over HTTP", ("", *_COLUMNS, "runs with errors"), rows)


def _budget(name: str, failed: Counter[str]) -> Budget:
    promise = f"{name}, {CLIENTS} clients: runs with errors"
    return at_most(promise, failed[name], 0, "")
