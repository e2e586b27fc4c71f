"""Calls to a healthy server while another keeps the gateway busy."""

from dataclasses import dataclass, field
from typing import Any

from bench.process import Workspace
from bench.report import Section, Table, at_most
from bench.rounds import Samples, interleaved
from bench.scale import Scale
from tests.serve.hostile import active, beside, waits

HEADING = "Waits beside hostile servers"

_QUIET_P50, _QUIET_P99 = "quiet p50 ms", "quiet p99 ms"
_P50, _P99, _LATEST = "p50 ms", "p99 ms", "latest ms"
_COLUMNS = (_QUIET_P50, _QUIET_P99, _P50, _P99, _LATEST)
_LIMIT_MS, _LIMIT_MS_PER_MB = 50.0, 10.0
_WARM_S = 0.3

_ABOUT = (
    "A client calls a healthy server's echo over HTTP, one call after the other, before and while "
    "another client has a hostile server behind the same gateway do this over and over.",
    f"The limit is {_LIMIT_MS:g} ms, and {_LIMIT_MS_PER_MB:g} ms more for each MB of the largest "
    "message.",
)


@dataclass(frozen=True)
class Hostile:
    """A way to keep the gateway busy: the call, and the size of the largest message."""

    name: str
    megabytes: float = 0.0
    tool: str = "rogue__bad"
    arguments: dict[str, Any] = field(default_factory=dict)
    server: tuple[str, ...] = ("plain",)
    over: str = "stdio"
    may_double: bool = False
    """True if the median may at most double."""


def _misbehaving(name: str, mode: str, megabytes: float = 0.0, **more: Any) -> Hostile:
    return Hostile(name, megabytes, arguments={"mode": mode}, **more)


CASES = (
    _misbehaving("results of 14 MB, nested", "nested", 14.0),
    _misbehaving("results of 14 MB, nested, from a URL", "nested", 14.0, over="http"),
    _misbehaving("notifications too deep and good in turn", "too-deep", 1.0),
    _misbehaving("notifications without end", "chatter", may_double=True),
    _misbehaving("notifications without end, from a URL", "chatter", over="http", may_double=True),
    _misbehaving("results of 150,000 links", "links", 9.6, may_double=True),
    _misbehaving("batches of 7,000,000 members", "batch", 14.0),
    Hostile(
        "arguments that are slow to check",
        arguments={"mode": "plain", "numbers": list(range(2000))},
        server=("schema",),
    ),
    Hostile("90,000 tools, asked for again", 8.0, tool="refresh_tools", server=("many", "90000")),
)


def measure(scale: Scale) -> Section:
    """Each case in a gateway of its own."""
    section, samples = Section(notes=list(_ABOUT)), Samples()
    for case in interleaved(CASES, min(scale.rounds, 3)):
        _measure(case, samples, 3.0 * scale.web_seconds if scale.rounds > 1 else 1.0)
    rows = [
        [c.name, *(samples.cell(c.name, of, "{:.2f}".format) for of in _COLUMNS)] for c in CASES
    ]
    section.tables.append(Table("Calls to another server", ("", *_COLUMNS), rows))
    for case in CASES:
        limit = _LIMIT_MS + _LIMIT_MS_PER_MB * case.megabytes
        p99 = samples.median(case.name, _P99)
        section.budgets.append(at_most(f"beside {case.name}: p99", p99, limit, " ms"))
        if case.may_double:
            quiet, busy = (samples.median(case.name, of) for of in (_QUIET_P50, _P50))
            ratio = busy / quiet if busy and quiet else None
            section.budgets.append(at_most(f"beside {case.name}: p50", ratio, 2, "x"))
    section.notes += [f"noisy: {noise}" for noise in samples.noisy()]
    return section


def _measure(case: Hostile, samples: Samples, seconds: float) -> None:
    with (
        Workspace() as workspace,
        beside(workspace.path, case.over, *case.server) as (gateway, well),
    ):
        waits(well, _WARM_S)
        quiet = waits(well, seconds / 2)
        with active(gateway, case.tool, **case.arguments):
            hostile = waits(well, seconds)
    for column, took, share in (
        (_QUIET_P50, quiet, 0.5),
        (_QUIET_P99, quiet, 0.99),
        (_P50, hostile, 0.5),
        (_P99, hostile, 0.99),
        (_LATEST, hostile, 1.0),
    ):
        at = min(len(took) - 1, int(len(took) * share))
        samples.add(case.name, column, took[at] * 1e3)
