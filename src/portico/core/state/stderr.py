"""Writes to stderr without blocking, even if its reader has stopped."""

import atexit
import os
import select
import sys
import threading
from collections import deque
from time import monotonic

_MAX_QUEUED = 1000
_ATOMIC_SIZE = 4096
"""A writable pipe accepts this many bytes without blocking."""
_FLUSH_S = 1.0


class Stderr:
    """Writes lines directly while there is room, else from a thread; drops the oldest first."""

    def __init__(self, fd: int = 2) -> None:
        self._fd = fd
        self._queued: deque[bytes] = deque(maxlen=_MAX_QUEUED)
        self._woken = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_busy = False

    def write_line(self, line: str) -> None:
        """Write a line, now or once the pipe has room."""
        if self._fd == 2 and (sys.__stderr__ is None or sys.stderr is not sys.__stderr__):
            # It was closed when we started, so its descriptor may be another file's; or the program
            # has replaced it.
            if sys.stderr is not None:
                sys.stderr.write(f"{line}\n")
            return
        data = line.encode(errors="backslashreplace") + b"\n"
        try:
            if len(data) <= _ATOMIC_SIZE and not self._is_behind and self._has_room():
                os.write(self._fd, data)
                return
        except (OSError, ValueError):
            return  # it is closed
        self._queued.append(data)
        self._woken.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="stderr", daemon=True)
            self._thread.start()
            atexit.register(self.flush)

    def flush(self, within_s: float = _FLUSH_S) -> None:
        """Wait until all lines are written, up to the timeout."""
        until = monotonic() + within_s
        while self._is_behind and monotonic() < until:
            threading.Event().wait(0.01)

    @property
    def _is_behind(self) -> bool:
        return self._is_busy or bool(self._queued)

    def _has_room(self) -> bool:
        return bool(select.select([], [self._fd], [], 0)[1])

    def _run(self) -> None:
        while True:
            self._woken.wait()
            self._woken.clear()
            while self._queued:
                self._is_busy = True
                data = memoryview(self._queued.popleft())
                try:
                    while data:
                        data = data[os.write(self._fd, data) :]
                except OSError:
                    self._queued.clear()  # its reader has closed it
                self._is_busy = False


STDERR = Stderr()
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=STDERR.__init__)  # type: ignore[misc]  # it has no thread
