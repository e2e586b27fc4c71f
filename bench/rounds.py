"""Interleaved rounds, so that a disturbance of the machine affects every contender alike."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import TypeVar

T = TypeVar("T")

NOISY = 0.35
"""A spread, as a part of the median, past which a figure is not to be trusted."""


def interleaved(contenders: Sequence[T], rounds: int) -> Iterator[T]:
    """Every contender once a round; odd rounds go in reverse order."""
    for number in range(rounds):
        yield from reversed(contenders) if number % 2 else contenders


class Samples:
    """Figures by row and column, one a round."""

    def __init__(self) -> None:
        self._figures: dict[tuple[str, str], list[float]] = defaultdict(list)

    def add(self, row: str, column: str, figure: float) -> None:
        """Keep the figure of one round."""
        self._figures[row, column].append(figure)

    def forget_first(self, column: str) -> None:
        """Drop the first round of a column."""
        for (_, of), figures in self._figures.items():
            if of == column:
                del figures[0]

    def median(self, row: str, column: str) -> float | None:
        """The middle of all rounds, or None where nothing was measured."""
        figures = self._figures.get((row, column))
        return median(figures) if figures else None

    def best(self, row: str, column: str) -> float | None:
        """The round that was disturbed least."""
        return min(self._figures.get((row, column), ()), default=None)

    def ratio(self, row: str, other: str, column: str) -> float | None:
        """The middle of the ratios round by round, which noise moves less than the figures."""
        mine, theirs = self._figures.get((row, column)), self._figures.get((other, column))
        if not mine or not theirs:
            return None
        return median(a / b for a, b in zip(mine, theirs, strict=False))

    def difference(self, row: str, other: str, column: str) -> float | None:
        """The middle of the differences round by round."""
        mine, theirs = self._figures.get((row, column)), self._figures.get((other, column))
        if not mine or not theirs:
            return None
        return median(a - b for a, b in zip(mine, theirs, strict=False))

    def noisy(self) -> list[str]:
        """Which figures vary too much between rounds."""
        found = []
        for (row, column), figures in self._figures.items():
            spread = (max(figures) - min(figures)) / median(figures)
            if spread > NOISY:
                found.append(f"{row}, {column}: {min(figures):,.4g} to {max(figures):,.4g}")
        return found

    def cell(self, row: str, column: str, shown: Callable[[float], str] = "{:,.0f}".format) -> str:
        """The median as a table shows it."""
        figure = self.median(row, column)
        return "-" if figure is None else shown(figure)
