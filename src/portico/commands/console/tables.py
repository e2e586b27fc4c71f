"""Tables for people, in columns that are as wide as their cells."""

from collections.abc import Iterator, Sequence
from typing import Any

from portico.commands.console.render import clean


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the rows as lines, with their cells below each other and on one line each."""
    safe = [[on_one_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*safe, strict=True)]
    for row in safe:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield f"  {'  '.join(cells)}".rstrip()


def on_one_line(words: str) -> str:
    """Return a text without line breaks and invisible characters."""
    return clean(words).replace("\n", " ")


def shortened(words: str, length: int) -> str:
    """Return the first line of a text, cut to a length."""
    line = words.partition("\n")[0]
    return line if len(line) <= length else f"{line[: length - 1]}…"


def duration(seconds: Any) -> str:
    """Format a duration in its largest unit."""
    if not isinstance(seconds, int | float):
        return "-"
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
