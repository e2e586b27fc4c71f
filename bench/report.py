"""Tables and budgets, as Markdown that reads well in a terminal too."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.workload import ROOT

PAGE = ROOT / "docs" / "performance.md"
_INTRO = """\
# Performance

`make bench` measures Portico beside its peers and beside floors (programs that do the least
possible and check nothing), in interleaved rounds of one run; the figures are medians. CPU is
user and system time of the contender alone. Compare ratios, not figures of different machines,
and take anything below 1.5x for noise. `python -m bench --quick` is a smoke run that keeps
nothing; `python -m bench http stdio` measures only these. Each part below is what the last run
of it wrote.

Lists over stdio are measured one at a time, which the budget counts, and with eight in flight. The
Python SDK is measured as it comes, with sessions, which the budget counts, and in its fastest mode
(stateless, JSON, modern), which would miss it: a fiftieth of that is less than bare uvicorn.
"""


@dataclass(frozen=True)
class Table:
    """Rows of text under a title."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """The table, its columns aligned."""
        lines = [list(self.columns), *map(list, self.rows)]
        widths = [max(len(line[place]) for line in lines) for place in range(len(self.columns))]
        rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
        body = [
            "| " + " | ".join([line[0].ljust(widths[0]), *_right(line, widths)]) + " |"
            for line in (lines[0], rule, *lines[1:])
        ]
        return f"### {self.title}\n\n" + "\n".join(body) + "\n"


def _right(line: list[str], widths: list[int]) -> list[str]:
    return [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]


@dataclass(frozen=True)
class Budget:
    """A promise, and what came of it; `met` is None where it could not be measured."""

    promise: str
    limit: str
    measured: str
    met: bool | None

    @property
    def verdict(self) -> str:
        """`met`, `MISSED`, or that nobody knows."""
        return {True: "met", False: "MISSED", None: "not measured"}[self.met]


def at_most(
    promise: str, figure: float | None, limit: float, unit: str, best: float | None = None
) -> Budget:
    """A budget for a figure that should be small; `best` is shown where noise only adds to it."""
    met = None if figure is None else figure <= limit
    shown = _shown(figure, unit) + (f" (best {best:,.3g})" if best is not None else "")
    return Budget(promise, f"<= {limit:g}{unit}", shown, met)


def at_least(promise: str, figure: float | None, limit: float, unit: str) -> Budget:
    """A budget for a figure that should be large."""
    met = None if figure is None else figure >= limit
    return Budget(promise, f">= {limit:g}{unit}", _shown(figure, unit), met)


def _shown(figure: float | None, unit: str) -> str:
    return "-" if figure is None else f"{figure:,.3g}{unit}"


@dataclass
class Section:
    """What one file of `bench/tables` found out."""

    tables: list[Table] = field(default_factory=list)
    budgets: list[Budget] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def markdown(self) -> str:
        """Tables, then what to know about them."""
        parts = [table.markdown() for table in self.tables]
        if self.notes:
            parts.append("\n".join(f"- {note}" for note in self.notes) + "\n")
        return "\n".join(parts)


def verdicts(budgets: Sequence[Budget]) -> Table:
    """All budgets in one table."""
    rows = [(b.promise, b.limit, b.measured, b.verdict) for b in budgets]
    return Table("Budgets", ("budget", "limit", "measured", "verdict"), rows)


def summary(budgets: Sequence[Budget]) -> str:
    """The last line of a run."""
    missed = sum(budget.met is False for budget in budgets)
    unknown = sum(budget.met is None for budget in budgets)
    line = f"{missed} of {len(budgets)} budgets MISSED"
    return f"{line}, {unknown} not measured" if unknown else line


def keep(name: str, heading: str, text: str, page: Path = PAGE) -> None:
    """Replace one part of the page with what was just measured."""
    old = page.read_text(encoding="utf-8") if page.is_file() else _INTRO
    begin, end = f"<!-- begin bench {name} -->", f"<!-- end bench {name} -->"
    part = f"{begin}\n## {heading}\n\n{text.strip()}\n{end}"
    place = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if place.search(old):
        new = place.sub(lambda _: part, old)
    else:
        new = f"{old.rstrip()}\n\n{part}\n"
    page.parent.mkdir(exist_ok=True)
    page.write_text(new, encoding="utf-8")
