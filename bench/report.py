"""Tables and budgets, as Markdown that reads well in a terminal too."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.workload import ROOT

PAGE = ROOT / "docs" / "use" / "performance.md"
FRONT = ROOT / "README.md"
PICTURE = ROOT / "docs" / "pictures" / "performance.svg"


@dataclass(frozen=True)
class Table:
    """Rows of text, under a title if it has one."""

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
        heading = f"### {self.title}\n\n" if self.title else ""
        return heading + "\n".join(body) + "\n"


def _right(line: list[str], widths: list[int]) -> list[str]:
    return [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]


@dataclass(frozen=True)
class Budget:
    """A promise and its outcome; `met` is None if it could not be measured."""

    promise: str
    limit: str
    measured: str
    met: bool | None

    @property
    def verdict(self) -> str:
        """`met`, `MISSED`, or unknown."""
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
    return "-" if figure is None else f"{rounded(figure)}{unit}"


def rounded(figure: float) -> str:
    """A figure with three digits, or with all of them before the point."""
    return f"{figure:,.0f}" if abs(figure) >= 1000 else f"{figure:,.3g}"


@dataclass
class Section:
    """The findings of one file of `bench/tables`."""

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
    put(name, f"## {heading}\n\n{text}", page)


def put(name: str, text: str, page: Path) -> None:
    """Replace the text between the marks of this name, or append it."""
    old = page.read_text(encoding="utf-8")
    begin, end = f"<!-- begin bench {name} -->", f"<!-- end bench {name} -->"
    part = f"{begin}\n{text.strip()}\n{end}"
    place = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if place.search(old):
        new = place.sub(lambda _: part, old)
    else:
        new = f"{old.rstrip()}\n\n{part}\n"
    page.write_text(new, encoding="utf-8")
