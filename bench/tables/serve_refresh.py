"""How long it takes to ask all servers: as long as the slowest, not as all together."""

import time

from bench.gateway import SERVERS, Fleet, GatewayPipe, spread, with_echo
from bench.process import Workspace
from bench.report import Budget, Section, Table, at_most
from bench.rounds import Samples
from bench.scale import Scale
from portico.upstream.connections.catalog_views import (
    REFRESH_S,  # the shortest interval of refreshes
)

_USUAL_S, _SLOWEST_S = 0.5, 1.5
_TOOLS = 200
_STARTING, _RUNNING = "started for it", "running already"
_SECONDS = "seconds"
_LIMIT = 1.5
_ROUNDS = 3


def measure(scale: Scale, section: Section) -> None:
    """A refresh with servers that think before they answer."""
    samples = Samples()
    servers = with_echo(spread(_TOOLS, SERVERS))
    delays_s = dict.fromkeys(servers, _USUAL_S)
    delays_s[next(reversed(delays_s))] = _SLOWEST_S
    for _ in range(min(scale.rounds, _ROUNDS)):
        with Workspace() as workspace:
            fleet = Fleet(workspace, servers, delays_s)
            server = GatewayPipe(fleet.contender("refresh", "--no-refresh"), fleet)
            with server.process:
                server.open()
                samples.add(_STARTING, _SECONDS, server.seconds("refresh_tools"))
                time.sleep(REFRESH_S)
                samples.add(_RUNNING, _SECONDS, server.seconds("refresh_tools"))
    section.tables.append(_table(samples))
    section.budgets.append(_budget(samples))


def _table(samples: Samples) -> Table:
    rows = []
    for row in (_STARTING, _RUNNING):
        took_s = samples.median(row, _SECONDS) or 0.0
        figures = (took_s, took_s / _SLOWEST_S, took_s / _sum_s())
        rows.append([row, *(f"{figure:.2f}" for figure in figures)])
    columns = ("", _SECONDS, "x the slowest", "x their sum")
    return Table(f"Refresh of {SERVERS} servers: 0.5 s each, one 1.5 s", columns, rows)


def _sum_s() -> float:
    return (SERVERS - 1) * _USUAL_S + _SLOWEST_S


def _budget(samples: Samples) -> Budget:
    took_s = samples.median(_RUNNING, _SECONDS)
    ratio = None if took_s is None else took_s / _SLOWEST_S
    return at_most(f"serve, refresh of {SERVERS} servers beside the slowest", ratio, _LIMIT, "x")
