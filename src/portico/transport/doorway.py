"""An event loop whose selector serves one descriptor itself, as long as that takes no waiting.

Each turn of the event loop costs more than a cached list. A client that asks for lists one after
the other is answered without any: wake, read, write, and wait again.
"""

import asyncio
import selectors
from collections.abc import Callable
from time import monotonic

Take = Callable[[], bool]
"""Reads and answers; False if the event loop has something to do now."""


class Doorway(selectors.DefaultSelector):
    """Waits like any selector, and lets `take` answer what needs nobody else."""

    _fd = -1
    _take: Take | None = None

    def attend(self, fd: int, take: Take | None) -> None:
        """Have `take` called when this descriptor alone is ready; it stays registered as it is."""
        self._fd, self._take = fd, take

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready, less what was taken care of."""
        until = None if timeout is None else monotonic() + timeout
        while True:
            ready = super().select(timeout)
            # Whatever else is ready, a timer and a signal included, has its turn at once.
            if self._take is None or len(ready) != 1 or ready[0][0].fd != self._fd:
                return ready
            if not self._take():
                return []
            if until is not None:
                timeout = until - monotonic()
                if timeout <= 0:
                    return []


def attend(fd: int, take: Take | None) -> None:
    """Serve a descriptor in the running loop's selector, if that can; None ends it."""
    selector = getattr(asyncio.get_running_loop(), "_selector", None)
    if isinstance(selector, Doorway):
        selector.attend(fd, take)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """The loop to serve stdio with."""
    return asyncio.SelectorEventLoop(Doorway())
