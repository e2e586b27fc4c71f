"""Figures of earlier runs, read back from the tables of the page that keeps them."""

import re
from collections.abc import Iterator, Mapping

Rows = Mapping[str, Mapping[str, str]]
"""The cells of a table by row and column."""

_PART = re.compile(r"<!-- begin bench (\w+) -->\n(.*?)<!-- end bench \1 -->", re.DOTALL)
_TABLE = re.compile(r"(?:^### (.*)\n\n)?((?:^\|.*\n)+)", re.MULTILINE)
_NUMBER = re.compile(r"-?[\d,]+(?:\.\d+)?")


def number(cell: str) -> float | None:
    """Return the figure at the beginning of a cell; None if there is none."""
    found = _NUMBER.match(cell)
    return float(found[0].replace(",", "")) if found else None


class Kept:
    """Every table of a page, by the name of its part and its title; those of a part that have no
    title are one."""

    def __init__(self, page: str) -> None:
        self._tables: dict[tuple[str, str], dict[str, dict[str, str]]] = {}
        for part, title, rows in _tables(page):
            table = self._tables.setdefault((part, title), {})
            for row, cells in rows.items():
                table.setdefault(row, {}).update(cells)

    def rows(self) -> Iterator[tuple[str, str, Rows]]:
        """Each table with its part and its title."""
        return ((part, title, rows) for (part, title), rows in self._tables.items())

    def figure(self, part: str, title: str, row: str, column: str) -> float | None:
        """One figure, or None where no run has kept it."""
        cell = self._tables.get((part, title), {}).get(row, {}).get(column, "")
        return number(cell)

    def budgets(self) -> dict[str, str]:
        """The verdict on every budget."""
        kept = (rows for (_, title), rows in self._tables.items() if title == "Budgets")
        return {promise: cells["verdict"] for rows in kept for promise, cells in rows.items()}


def _tables(page: str) -> Iterator[tuple[str, str, Rows]]:
    for part, text in _PART.findall(page):
        for title, lines in _TABLE.findall(text):
            columns, _, *rows = map(_cells, lines.splitlines())
            yield part, title, {row[0]: dict(zip(columns, row, strict=True)) for row in rows}


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]
