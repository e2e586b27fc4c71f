"""What a child says on stderr, passed on as it comes: bounded, and without its secrets."""

from collections.abc import Callable
from time import monotonic

from portico.process.stderr_tail import StderrTail
from portico.protocol.line_reader import LineReader

MAX_A_SECOND = 64 * 1024
"""So many bytes a second are passed on; a flood is cut short, and said to be."""
_LONGEST = 8 * 1024


class StderrLines:
    """Cuts a child's stderr into lines for a listener, and keeps its end for error messages."""

    def __init__(
        self, ring: StderrTail, tell: Callable[[str], None], clock: Callable[[], float] = monotonic
    ) -> None:
        self._ring = ring
        self._tell = tell
        self._clock = clock
        self._lines = LineReader(_LONGEST)
        self._second = 0
        self._told = 0
        self._untold = 0

    def add(self, data: bytes) -> None:
        """Take in more."""
        self._ring.add(data)
        for line in self._lines.feed(data):
            self._pass_on(self._lines.ends if line is None else line)

    def _pass_on(self, line: bytes) -> None:
        second = int(self._clock())
        if second != self._second:
            if self._untold:
                self._tell(f"... {self._untold} more lines")
            self._second, self._told, self._untold = second, 0, 0
        self._told += len(line)
        if self._told > MAX_A_SECOND:
            self._untold += 1
        else:
            self._tell(self._ring.hide(line.decode(errors="replace")))
