"""Standard error, which nobody may be reading: whoever writes there never waits for it."""

import atexit
import os
import select
import sys
import threading
from collections import deque
from time import monotonic

_MAX_WAITING = 1000
_AT_ONCE = 4096
"""A pipe that has room at all takes so many bytes without waiting."""
_LAST_WORDS_S = 1.0


class Stderr:
    """Writes lines at once while there is room, and else by a thread; the oldest is lost first."""

    def __init__(self, fd: int = 2) -> None:
        self._fd = fd
        self._waiting: deque[bytes] = deque(maxlen=_MAX_WAITING)
        self._woken = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_busy = False

    def say(self, line: str) -> None:
        """Write a line, now or as soon as the reader lets us."""
        if self._fd == 2 and (sys.__stderr__ is None or sys.stderr is not sys.__stderr__):
            # It was closed when we began, and its number may be another file's by now; or somebody
            # has put something else in its place.
            if sys.stderr is not None:
                sys.stderr.write(f"{line}\n")
            return
        data = line.encode(errors="backslashreplace") + b"\n"
        try:
            if len(data) <= _AT_ONCE and not self._is_behind and self._has_room():
                os.write(self._fd, data)
                return
        except (OSError, ValueError):
            return  # it is closed, or nobody will ever read it
        self._waiting.append(data)
        self._woken.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="stderr", daemon=True)
            self._thread.start()
            atexit.register(self.flush)

    def flush(self, within_s: float = _LAST_WORDS_S) -> None:
        """Wait a moment for what is not written yet."""
        until = monotonic() + within_s
        while self._is_behind and monotonic() < until:
            threading.Event().wait(0.01)

    @property
    def _is_behind(self) -> bool:
        return self._is_busy or bool(self._waiting)

    def _has_room(self) -> bool:
        return bool(select.select([], [self._fd], [], 0)[1])

    def _run(self) -> None:
        while True:
            self._woken.wait()
            self._woken.clear()
            while self._waiting:
                self._is_busy = True
                data = memoryview(self._waiting.popleft())
                try:
                    while data:
                        data = data[os.write(self._fd, data) :]
                except OSError:
                    self._waiting.clear()  # nobody reads it any more
                self._is_busy = False


STDERR = Stderr()
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=STDERR.__init__)  # type: ignore[misc]  # it has no thread
