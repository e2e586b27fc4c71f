"""Compares a run with the last one that was kept, row by row."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from bench.kept import Kept, number
from bench.report import Table

MOST = 1.15
"""A row that costs more than so many times what it did is named, with its reason if it has one."""
_NO_COSTS = (
    *("completed", "tools", "servers", "recall", "times less", "times less, text"),
    "without Portico",
)
_OTHERS = (
    *("floor", "for scale", "one commit of SQLite", "the upstream itself", "without Portico"),
    *("FastMCP", "mcp-", "supergateway", "Python SDK", "TypeScript SDK", "oras", "Qwen Code"),
)
"""How the rows of floors, peers and real agents begin; every other row is Portico's."""
REASONS: Mapping[tuple[str, str], str] = {}
"""By part and row, why it costs more than in the run before; not needed once a run is kept."""


def dearer(part: str, tables: Sequence[Table], kept: Kept) -> list[str]:
    """Name the rows of Portico that cost more than in the kept run.

    What floors and peers cost more by, in the same table, is the machine's share and taken off.
    """
    return [line for table in tables for line in _dearer(part, table, kept)]


def _dearer(part: str, table: Table, kept: Kept) -> Iterator[str]:
    changes = dict(_changes(part, table, kept))
    others = [change for (row, _), change in changes.items() if not is_ours(row)]
    machine = median(others) if others else 1.0
    for (row, column), change in changes.items():
        if is_ours(row) and change > MOST * machine:
            why = REASONS.get((part, row), "no reason is given")
            yield f"{table.title or part}, {row}, {column}: {change / machine:.2f} times ({why})"


def _changes(part: str, table: Table, kept: Kept) -> Iterator[tuple[tuple[str, str], float]]:
    costs = [one for one in table.columns[1:] if "/s" not in one and one not in _NO_COSTS]
    for row in table.rows:
        cells = dict(zip(table.columns, row, strict=True))
        for column in costs:
            before, now = kept.figure(part, table.title, row[0], column), number(cells[column])
            if before and now:
                yield (row[0], column), now / before


def is_ours(row: str) -> bool:
    """True for a row of Portico."""
    return not row.startswith(_OTHERS)
