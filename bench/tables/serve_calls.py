"""The cost that the gateway adds to a call, over stdio and HTTP, beside `wrap` and peers."""

from contextlib import ExitStack
from dataclasses import dataclass

from bench.contenders import (
    PROXY_FASTMCP,
    PROXY_FLOOR,
    UPSTREAM_STDIO,
    WEB_FASTMCP,
    WEB_FLOOR,
    WEB_WRAP,
    WEB_WRAP_MODERN,
    WRAP,
    Asked,
    Contender,
)
from bench.cores import one_core, price_of_waking
from bench.gateway import Fleet, GatewayPipe, GatewayWeb
from bench.pipe import MakeRequest
from bench.report import Budget, Section, Table, at_most
from bench.rounds import Samples, interleaved
from bench.scale import Scale
from bench.tables.wrap_drive import ProxyPipe, ProxyWeb, note, present, started_web
from bench.workload import WrongAnswer

_EXECUTE, _PREFIXED = "serve, execute_tool", "serve, server__echo"
_MODERN, _SESSION = f"{_EXECUTE}, modern era", f"{_EXECUTE}, session"
_PREFIXED_MODERN = f"{_PREFIXED}, modern era"
PATHS = ("express calls", "Pending")
"""Fast paths that are each disabled for one row."""
_ONE, _ONE_CORE, _P50 = "CPU us", "on one core", "p50 us"
_IN_FLIGHT = (8, 32)
_RATE = "calls/s, 32 in flight"
_WEB_CPU = "CPU us, 8 connections"
_CONNECTIONS = 8
_WARM = 20
_STDIO_PEERS = (UPSTREAM_STDIO, PROXY_FLOOR, WRAP, PROXY_FASTMCP)
_WEB_PEERS = (WEB_FLOOR, WEB_WRAP_MODERN, WEB_WRAP, WEB_FASTMCP)
_NAMES = {WRAP: "wrap", WEB_WRAP_MODERN: "wrap, modern era", WEB_WRAP: "wrap, session"}
BUDGET_US = 200


@dataclass(frozen=True)
class _Row:
    name: str
    server: ProxyPipe
    make: MakeRequest


def measure(fleet: Fleet, scale: Scale, section: Section) -> None:
    """CPU and added time a call."""
    samples = Samples()
    _over_stdio(fleet, scale, samples, section.notes)
    _over_http(fleet, scale, samples, section.notes)
    section.tables += [_stdio_table(samples), _web_table(samples)]
    section.budgets += _budgets(samples)
    section.notes.append(price_of_waking(scale.calls))
    section.notes += [f"noisy: {noise} (calls)" for noise in samples.noisy()]


def _over_stdio(fleet: Fleet, scale: Scale, samples: Samples, notes: list[str]) -> None:
    with ExitStack() as stack:
        rows = [*_gateway_rows(fleet, stack)]
        for contender in present(_STDIO_PEERS, notes):
            server = ProxyPipe(contender, fleet.workspace)
            stack.enter_context(server.process)
            try:
                server.open()
                server.check_call()
            except WrongAnswer as wrong:
                note(notes, f"{contender.name} over stdio left out: {wrong}")
            else:
                rows.append(_Row(named(contender), server, server.call_request))
        patience_s = 0.5 if scale.rounds == 1 else 2.0
        for row in interleaved(rows, scale.rounds):
            _work(row, scale.calls, patience_s, samples)


def _gateway_rows(fleet: Fleet, stack: ExitStack) -> list[_Row]:
    whole = fleet.contender(_EXECUTE)
    rows = []
    for contender in (whole, *map(whole.without, PATHS)):
        server = GatewayPipe(contender, fleet)
        stack.enter_context(server.process)
        server.open()
        server.use("refresh_tools")
        server.check_call()
        rows.append(_Row(contender.name, server, server.call_request))
        if contender is whole:
            rows.append(_Row(_PREFIXED, server, server.prefixed_request))
    return rows


def _work(row: _Row, wanted: int, patience_s: float, samples: Samples) -> None:
    calls = row.server.affordable(row.make, wanted, patience_s)
    timed = row.server.timed(row.make, calls)
    samples.add(row.name, _ONE, timed.cpu_us)
    samples.add(row.name, _P50, timed.p50_us)
    with one_core(row.server.process.everyone()):
        samples.add(row.name, _ONE_CORE, row.server.timed(row.make, calls).cpu_us)
    for in_flight in _IN_FLIGHT:
        many = row.server.load(row.make, max(calls, 2 * in_flight), in_flight)
        samples.add(row.name, _flight(in_flight), many.cpu_us)
    samples.add(row.name, _RATE, many.requests / many.seconds)


def _over_http(fleet: Fleet, scale: Scale, samples: Samples, notes: list[str]) -> None:
    with ExitStack() as stack:
        servers: list[tuple[str, ProxyWeb]] = [
            (server.contender.name, server) for server in gateways(fleet, stack, prefixed=True)
        ]
        whole = fleet.web_contender(_MODERN, Asked.MODERN)
        servers += [
            (contender.name, _warm(GatewayWeb(contender, fleet), stack))
            for contender in map(whole.without, PATHS)
        ]
        peers = started_web(_WEB_PEERS, fleet.workspace, 50, stack, notes)
        servers += [(named(peer.contender), peer) for peer in peers]
        for name, server in interleaved(servers, scale.rounds):
            try:
                load = server.load(server.call_post(), scale.web_seconds, _CONNECTIONS)
            except WrongAnswer as wrong:
                note(notes, f"{name} over HTTP: {wrong}")
            else:
                samples.add(name, _WEB_CPU, load.cpu_us)


def named(contender: Contender) -> str:
    """The name of a peer in these tables."""
    return _NAMES.get(contender, contender.name)


def gateways(fleet: Fleet, stack: ExitStack, *, prefixed: bool = False) -> list[GatewayWeb]:
    """Warm gateways over HTTP: for the modern era, for sessions, for plain calls."""
    kinds = [(_MODERN, Asked.MODERN, False), (_SESSION, Asked.SESSION, False)]
    kinds += [(_PREFIXED_MODERN, Asked.MODERN, True)] if prefixed else []
    return [
        _warm(GatewayWeb(fleet.web_contender(name, asked), fleet, prefixed=plain), stack)
        for name, asked, plain in kinds
    ]


def _warm(server: GatewayWeb, stack: ExitStack) -> GatewayWeb:
    stack.enter_context(server.process)
    server.open()
    for _ in range(_WARM):
        server.check_call()
    return server


def _without(name: str) -> list[str]:
    return [f"{name}, without {path}" for path in PATHS]


def _flight(in_flight: int) -> str:
    return f"CPU us, {in_flight} in flight"


def _stdio_table(samples: Samples) -> Table:
    names = [UPSTREAM_STDIO.name, PROXY_FLOOR.name, "wrap", _EXECUTE, *_without(_EXECUTE)]
    names += [_PREFIXED, PROXY_FASTMCP.name]
    columns = (_ONE, _ONE_CORE, *map(_flight, _IN_FLIGHT), _RATE)
    rows = []
    for name in names:
        cells = [samples.cell(name, column) for column in columns]
        rows.append([name, *cells, _added(samples, name), _times(samples, name, "wrap", _ONE)])
    return Table("Calls over stdio", ("", *columns, "added p50 us", "x wrap"), rows)


def _added(samples: Samples, name: str) -> str:
    mine, direct = samples.median(name, _P50), samples.median(UPSTREAM_STDIO.name, _P50)
    if mine is None or direct is None or name == UPSTREAM_STDIO.name:
        return "-" if mine is None else f"({mine:,.0f})"
    return f"{mine - direct:,.0f}"


def _times(samples: Samples, name: str, other: str, column: str) -> str:
    ratio = samples.ratio(name, other, column)
    return "-" if ratio is None else f"{ratio:.2f}"


def _web_table(samples: Samples) -> Table:
    wraps = (_NAMES[WEB_WRAP_MODERN], _NAMES[WEB_WRAP])
    ours = (_MODERN, *_without(_MODERN), _SESSION, _PREFIXED_MODERN)
    rows = []
    for name in (WEB_FLOOR.name, *wraps, *ours, WEB_FASTMCP.name):
        times = _times(samples, name, WEB_FLOOR.name, _WEB_CPU)
        rows.append([name, samples.cell(name, _WEB_CPU), times])
    return Table("Calls over HTTP", ("", _WEB_CPU, "x floor"), rows)


def _budgets(samples: Samples) -> list[Budget]:
    def own(name: str, column: str, promise: str) -> Budget:
        figure, best = samples.median(name, column), samples.best(name, column)
        return at_most(promise, figure, BUDGET_US, " us", best)

    return [
        own(_EXECUTE, _ONE, "serve, execute_tool over stdio: CPU"),
        own(_EXECUTE, _ONE_CORE, "serve, execute_tool over stdio: CPU, on one core"),
        own(_EXECUTE, _flight(8), "serve, execute_tool over stdio, 8 in flight: CPU"),
        own(_PREFIXED, _ONE, "serve, prefixed call over stdio: CPU"),
        own(_PREFIXED, _ONE_CORE, "serve, prefixed call over stdio: CPU, on one core"),
        own(_MODERN, _WEB_CPU, "serve, execute_tool over HTTP, modern: CPU"),
        own(_SESSION, _WEB_CPU, "serve, execute_tool over HTTP, session: CPU"),
    ]
