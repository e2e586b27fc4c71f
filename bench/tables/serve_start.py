"""The gateway's start and memory: with what is stored, and without."""

from contextlib import nullcontext
from dataclasses import dataclass

from bench.gateway import SEARCH, Fleet, GatewayPipe
from bench.process import MB
from bench.report import Budget, Section, Table, at_most
from bench.rounds import Samples, interleaved
from bench.scale import Scale

_CPU, _WALL, _LISTED = "start CPU ms", "spawn to list ms", "RSS MB, list only"
_FOUND, _AGAIN, _PEAK = "RSS MB, after a search", "after a refresh", "at most"
_FIRST = "first search ms"
_STARTS = (_CPU, _WALL, _LISTED)
_MEMORY = (_FIRST, _FOUND, _AGAIN, _PEAK)
_BARE, _INDEXED = "bare", "indexed"
_QUERY = "send an email"


@dataclass(frozen=True)
class _Case:
    """The conditions in which Portico starts."""

    name: str
    kept: str | None = _INDEXED
    down: bool = False


_NORMAL = _Case("servers start meanwhile")
_DOWN = _Case("no server can start", down=True)
_STARTING = (_NORMAL, _DOWN, _Case("nothing stored", kept=None))
_STORED = _Case("index stored")
_BUILT = _Case("index to be built", kept=_BARE)
_MEMORY_ROUNDS = 3


def measure(fleet: Fleet, scale: Scale, section: Section) -> None:
    """From the spawn to the first list, and what is held after the first search."""
    samples = Samples()
    fleet.remember(_BARE)
    _index(fleet)
    fleet.remember(_INDEXED)
    for case in interleaved(_STARTING, scale.start_rounds):
        _start(fleet, case, samples)
    for case in interleaved((_STORED, _BUILT), min(scale.rounds, _MEMORY_ROUNDS)):
        _weigh(fleet, case, samples)
    fleet.recall(_INDEXED)
    section.tables += [
        _table("Start", _STARTING, _STARTS, samples),
        _table("Memory and the first search", (_STORED, _BUILT), _MEMORY, samples),
    ]
    section.budgets += _budgets(samples)
    section.notes += [f"noisy: {noise}" for noise in samples.noisy()]


def _index(fleet: Fleet) -> None:
    """A first search, with the servers as they are stored, so that its index is stored too."""
    server = GatewayPipe(fleet.contender("index"), fleet)
    with server.process:
        server.open()
        server.use("refresh_tools")
        server.use(SEARCH, query=_QUERY)


def _start(fleet: Fleet, case: _Case, samples: Samples) -> None:
    fleet.recall(case.kept)
    with fleet.down() if case.down else nullcontext():
        server = GatewayPipe(fleet.contender(case.name), fleet)
        with server.process:
            wall_s, cpu_s = server.start()
            samples.add(case.name, _CPU, cpu_s * 1e3)
            samples.add(case.name, _WALL, wall_s * 1e3)
            samples.add(case.name, _LISTED, server.own_rss() / MB)


def _weigh(fleet: Fleet, case: _Case, samples: Samples) -> None:
    fleet.recall(case.kept)
    server = GatewayPipe(fleet.contender(case.name), fleet)
    with server.process:
        server.open()
        samples.add(case.name, _FIRST, server.seconds(SEARCH, query=_QUERY) * 1e3)
        samples.add(case.name, _FOUND, server.own_rss() / MB)
        server.use("refresh_tools")
        server.use(SEARCH, query=_QUERY)
        samples.add(case.name, _AGAIN, server.own_rss() / MB)
        samples.add(case.name, _PEAK, server.own_rss("VmHWM") / MB)


def _table(
    title: str, cases: tuple[_Case, ...], columns: tuple[str, ...], samples: Samples
) -> Table:
    rows = [[case.name, *(samples.cell(case.name, column) for column in columns)] for case in cases]
    return Table(f"{title}, 20 servers and 6,000 tools", ("", *columns), rows)


def _budgets(samples: Samples) -> list[Budget]:
    def own(case: _Case, column: str, promise: str, limit: float, unit: str) -> Budget:
        figure, best = (f(case.name, column) for f in (samples.median, samples.best))
        return at_most(f"serve, {promise}", figure, limit, unit, best)

    return [
        own(_NORMAL, _CPU, "spawn to list: CPU", 250, " ms"),
        own(_DOWN, _CPU, "spawn to list, no server can start: CPU", 250, " ms"),
        own(_STORED, _FOUND, "RSS after the first search", 90, " MB"),
        own(_STORED, _AGAIN, "RSS after all servers were asked", 90, " MB"),
    ]
