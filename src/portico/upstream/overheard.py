"""What a child says on stderr, passed on as it comes: bounded, and without its secrets."""

import os
import threading
from collections import deque
from collections.abc import Callable
from time import monotonic

from portico.protocol.lines import LineReader
from portico.upstream.ring import Ring

MOST_A_SECOND = 64 * 1024
"""So many bytes a second are passed on; a flood is cut short, and said to be."""
_LONGEST = 8 * 1024


class Overheard:
    """Cuts a child's stderr into lines for a listener, and keeps its end for error messages."""

    def __init__(self, ring: Ring, tell: Callable[[str], None]) -> None:
        self._ring = ring
        self._tell = tell
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
        second = int(monotonic())
        if second != self._second:
            if self._untold:
                self._tell(f"... {self._untold} more lines")
            self._second, self._told, self._untold = second, 0, 0
        self._told += len(line)
        if self._told > MOST_A_SECOND:
            self._untold += 1
        else:
            self._tell(self._ring.hide(line.decode(errors="replace")))


class Echo:
    """Writes lines to a descriptor that may not be read: by a thread, and no more than it takes."""

    def __init__(self, fd: int, most: int = 1000) -> None:
        self._fd = fd
        self._waiting: deque[str] = deque(maxlen=most)
        self._woken = threading.Event()
        self._thread: threading.Thread | None = None

    def say(self, line: str) -> None:
        """Write a line as soon as the reader lets us; the oldest is forgotten first."""
        self._waiting.append(line)
        self._woken.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="stderr", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            self._woken.wait()
            self._woken.clear()
            while self._waiting:
                data = memoryview(self._waiting.popleft().encode(errors="replace") + b"\n")
                try:
                    while data:
                        data = data[os.write(self._fd, data) :]
                except OSError:
                    self._waiting.clear()  # nobody reads it any more
