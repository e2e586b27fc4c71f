"""A child's stderr, passed on line by line: limited, and without its secrets."""

from collections.abc import Callable
from time import monotonic

from portico.core.protocol.line_reader import LineReader
from portico.upstream.process.stderr_tail import StderrTail

MAX_BYTES_PER_SECOND = 64 * 1024
"""Further lines in the same second are dropped and counted."""
_MAX_LINE = 8 * 1024


class StderrLines:
    """Splits a child's stderr into lines, and keeps its tail for error messages."""

    def __init__(
        self,
        tail: StderrTail,
        report: Callable[[str], None],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._tail = tail
        self._report = report
        self._clock = clock
        self._lines = LineReader(_MAX_LINE)
        self._second = 0
        self._passed_size = 0
        self._dropped = 0

    def add(self, data: bytes) -> None:
        """Add more output."""
        self._tail.add(data)
        for line in self._lines.feed(data):
            self._forward(self._lines.ends if line is None else line)

    def _forward(self, line: bytes) -> None:
        second = int(self._clock())
        if second != self._second:
            if self._dropped:
                self._report(f"... {self._dropped} more lines")
            self._second, self._passed_size, self._dropped = second, 0, 0
        self._passed_size += len(line)
        if self._passed_size > MAX_BYTES_PER_SECOND:
            self._dropped += 1
        else:
            self._report(self._tail.hide(line.decode(errors="replace")))
