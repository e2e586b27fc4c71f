"""An event loop that serves pipes without a turn of its own, as long as nothing else is to be done.

Each turn of asyncio's loop costs more than to answer a cached list or to pass a call on. Where a
reader leaves nothing for the loop to do, the selector goes on waiting at once: wake, read, write.
"""

import asyncio
import contextvars
import selectors
from collections.abc import Callable
from time import monotonic
from typing import Any, TypeVarTuple, Unpack

Ts = TypeVarTuple("Ts")


class _Selector(selectors.DefaultSelector):
    """Waits like any selector, and serves the readers it was given itself."""

    def __init__(self) -> None:
        super().__init__()
        self.readers: dict[int, Callable[[], object]] = {}
        self.stirred = False
        """True if the loop has something to do now."""
        self.failed: Callable[[dict[str, Any]], None] | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready, less what was taken care of."""
        if timeout is not None and timeout <= 0:
            return super().select(timeout)  # the loop has something to do, and that comes first
        until = None if timeout is None else monotonic() + timeout
        readers = self.readers
        while True:
            ready = super().select(timeout)
            for key, events in ready:
                if key.fd not in readers or events != selectors.EVENT_READ:
                    return ready  # whoever else is ready, a signal included, has its turn at once
            if not ready:
                return ready
            self.stirred = False
            for key, _ in ready:
                self._serve(readers.get(key.fd))
            if self.stirred:
                return []
            if until is not None:
                timeout = until - monotonic()
                if timeout <= 0:
                    return []

    def _serve(self, reader: Callable[[], object] | None) -> None:
        if reader is None:
            return  # taken away by the one before
        try:
            reader()
        except Exception as error:  # noqa: BLE001  (as the loop does with its own callbacks)
            assert self.failed is not None
            self.failed({"message": f"exception in reader {reader!r}", "exception": error})


class DoorwayLoop(asyncio.SelectorEventLoop):
    """asyncio's own loop; readers added to it may run inside its selector."""

    def __init__(self) -> None:
        self._doorway = _Selector()
        super().__init__(self._doorway)
        self._doorway.failed = self.call_exception_handler

    def add_reader(self, fd: Any, callback: Callable[[Unpack[Ts]], Any], *args: *Ts) -> None:
        """Call back whenever there is something to read."""
        super().add_reader(fd, callback, *args)
        number = fd if isinstance(fd, int) else fd.fileno()
        self._doorway.readers[number] = lambda: callback(*args)

    def remove_reader(self, fd: Any) -> bool:
        """Do so no longer."""
        self._doorway.readers.pop(fd if isinstance(fd, int) else fd.fileno(), None)
        return super().remove_reader(fd)

    def call_soon(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Run this in the loop's next turn, which then must come."""
        self._doorway.stirred = True
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run this at a time, which the loop must know before it waits again."""
        self._doorway.stirred = True
        return super().call_at(when, callback, *args, context=context)
