"""The head of the page: one table and one chart, drawn from the tables that the page keeps."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import chart, report
from bench.chart import Panel
from bench.kept import Kept
from bench.report import Table

HEADING = "In short"
PART = "headline"
WITHOUT = "without it"
CONTENDERS = ("Portico", WITHOUT, "mcp-compressor", "supergateway", "mcp-proxy", "FastMCP")
_OVER_HTTP = {
    "Portico": "Portico, modern era",
    "mcp-compressor": "mcp-compressor (other lists)",
    "supergateway": "supergateway, stateful",
    "mcp-proxy": "mcp-proxy",
    "FastMCP": "FastMCP, create_proxy",
}
_OVER_STDIO = {
    **_OVER_HTTP,
    "Portico": "Portico, stored catalog",
    WITHOUT: "the upstream itself",
    "supergateway": "supergateway, to HTTP",
    "mcp-proxy": "mcp-proxy, to HTTP",
}
_START = "stdio to an upstream of 50 tools: start and memory"
_TOKENS = "Tokens before the first question"
_SECONDS = "From the start to an answer, seconds"
_CALLS, _EXECUTED, _FASTMCP = "Calls over stdio", "serve, execute_tool", "FastMCP, create_proxy"
_LOAD = "HTTP to a stdio upstream of 50 tools, after load"
SEARCH = report.PAGE.with_name("search.md")
_RECALL = re.compile(
    r"^\| substring count \| FastMCP .*\n.*\n\| \S+ \| (?P<theirs>\S+) \| \S+ \| (?P<ours>\S+) ",
    re.MULTILINE,
)
_NOTES = """\
- Smaller is better in every row. A dash: this benchmark does not measure it.
- Tokens: the definitions of [real servers](#real-servers), counted with gpt-tokenizer. With Portico
  a model reads six meta-tools and the instructions; without it, every definition.
- Start: with Portico, from spawning `serve` to the first search result, with catalogs and index on
  disk. Without it, the client starts all servers at once and waits for the last list.
- One server: from spawning the proxy to the first list of the 50 tools of a small Python server,
  over stdio. supergateway and mcp-proxy bridge between stdio and HTTP, so their server is behind
  HTTP.
- A call, and memory: HTTP in front, the same server as a child process behind. The child is not
  included.
- mcp-compressor returns a shorter list than the server, and FastMCP a different one.
"""


@dataclass(frozen=True)
class Measure:
    """One row of the table: its title, and the figure of each contender."""

    what: str
    unit: str
    figures: Mapping[str, float]

    def cells(self) -> list[str]:
        """The row of the table."""
        figures = (self.figures.get(name) for name in CONTENDERS)
        cells = ("-" if figure is None else f"{figure:,.0f}" for figure in figures)
        return [f"{self.what}, {self.unit}", *cells]

    def panel(self) -> Panel:
        """The same as bars."""
        bars = [(name, self.figures[name]) for name in CONTENDERS if name in self.figures]
        return Panel(self.what, self.unit, bars)


def redraw(
    page: Path = report.PAGE, front: Path = report.FRONT, picture: Path = report.PICTURE
) -> None:
    """Draw the head of the page, its chart and the front page's table again."""
    kept = Kept(page.read_text(encoding="utf-8"))
    measures = measured(kept)
    picture.write_text(chart.svg([measure.panel() for measure in measures]), encoding="utf-8")
    table = Table("", ("", *CONTENDERS), [measure.cells() for measure in measures])
    drawn = f"![The same figures as bars]({os.path.relpath(picture, page.parent)})"
    report.keep(PART, HEADING, f"{table.markdown()}\n{drawn}\n\n{_NOTES}\n{_verdict(kept)}", page)
    report.put(PART, benefits(kept, SEARCH.read_text(encoding="utf-8")).markdown(), front)


def benefits(kept: Kept, search: str = "") -> Table:
    """The front page's table of gains for a user; `search` is the page about search."""
    rows = []
    if tokens := _tokens(kept):
        read = [f"{tokens[name]:,.0f}" for name in (WITHOUT, "Portico")]
        what = "tokens of definitions that a model reads first, where its client defers none"
        rows.append([f"{what}; {_fleet(kept)}", "without Portico", *read])
    if start := _start(kept):
        took = [f"{start[name]:.1f} s" for name in (WITHOUT, "Portico")]
        what = "from a later start to the first search result; the same servers"
        rows.append([what, "the client starts all, and waits for the last list", *took])
    if called := _beside(kept, _LOAD, "call CPU us", _OVER_HTTP):
        wrapped = called.pop("Portico")
        rows += [
            ["CPU time of a call through `wrap`, over HTTP", name, *_microseconds(figure, wrapped)]
            for name, figure in _best_and_worst(called)
        ]
    served = {name: kept.figure("serve", _CALLS, name, "CPU us") for name in (_EXECUTED, _FASTMCP)}
    ours, theirs = served[_EXECUTED], served[_FASTMCP]
    if ours is not None and theirs is not None:
        what = "CPU time of a call through `serve`, over stdio"
        rows.append([what, "FastMCP", *_microseconds(theirs, ours)])
    if found := _RECALL.search(search):
        what = "recall of search: of the tools that a request needs, the part among the first five"
        rows.append([what, "FastMCP's search", found["theirs"], found["ours"]])
    return Table("", ("", "compared with", "that one", "Portico"), rows)


def _best_and_worst(peers: Mapping[str, float]) -> list[tuple[str, float]]:
    order = sorted(peers.items(), key=lambda item: item[1])
    return [order[0], order[-1]][: len(order)]


def _microseconds(*figures: float) -> list[str]:
    return [f"{figure:,.0f} µs" for figure in figures]


def measured(kept: Kept) -> list[Measure]:
    """All that the head of the page shows, as far as a run has kept it."""
    started = _beside(kept, _START, "spawn to list ms", _OVER_STDIO)
    called = _beside(kept, _LOAD, "call CPU us", _OVER_HTTP)
    weighed = _beside(kept, _LOAD, "RSS MB", _OVER_HTTP)
    measures = [
        Measure(f"Definitions: {_fleet(kept)}", "tokens", _tokens(kept)),
        Measure("The same servers: start to an answer", "ms", _thousandfold(_start(kept))),
        Measure("One server: start to the first list", "ms", started),
        Measure("A call through a proxy, CPU time", "µs", called),
        Measure("Memory of the proxy", "MB", weighed),
    ]
    return [measure for measure in measures if "Portico" in measure.figures]


def _beside(kept: Kept, table: str, column: str, rows: Mapping[str, str]) -> dict[str, float]:
    """A column of the proxies' tables."""
    found = {name: kept.figure("wrap", table, row, column) for name, row in rows.items()}
    return {name: figure for name, figure in found.items() if figure is not None}


def _fleet(kept: Kept) -> str:
    """How many servers and tools the tokens and the start are of."""
    columns = ("servers", "tools")
    found = (kept.figure("fleet", _TOKENS, "without Portico", column) for column in columns)
    servers, tools = (f"{figure or 0:.0f}" for figure in found)
    return f"{servers} real servers, {tools} tools"


def _tokens(kept: Kept) -> dict[str, float]:
    without = kept.figure("fleet", _TOKENS, "without Portico", "definitions")
    columns = ("definitions", "instructions")
    read = [kept.figure("fleet", _TOKENS, "with Portico", column) for column in columns]
    return _pair(without, read)


def _start(kept: Kept) -> dict[str, float]:
    rows = (
        "without Portico: the last server's list",
        "with Portico, later starts: a search result",
    )
    without, found = (kept.figure("fleet", _SECONDS, row, "median") for row in rows)
    return _pair(without, [found])


def _thousandfold(seconds: Mapping[str, float]) -> dict[str, float]:
    return {name: figure * 1000 for name, figure in seconds.items()}


def _pair(without: float | None, parts: Sequence[float | None]) -> dict[str, float]:
    """Both sides, or neither."""
    known = [part for part in parts if part is not None]
    if without is None or len(known) < len(parts):
        return {}
    return {"Portico": sum(known), WITHOUT: without}


def _verdict(kept: Kept) -> str:
    """How many budgets are met, and which are not."""
    budgets = kept.budgets()
    missed = [promise for promise, verdict in budgets.items() if verdict == "MISSED"]
    met = sum(verdict == "met" for verdict in budgets.values())
    line = f"{met} of {len(budgets)} [budgets](#how-it-is-measured) are met."
    return f"{line} Missed: {'; '.join(missed)}." if missed else line
