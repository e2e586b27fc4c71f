"""An event loop that serves pipes without a turn of its own, as long as nothing else is to be done.

Each turn of asyncio's loop costs more than to answer a cached list or to pass a call on. Where a
reader leaves nothing for the loop to do, the selector goes on waiting at once: wake, read, write.
"""

import asyncio
import contextlib
import contextvars
import os
import select
import selectors
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any, TypeVarTuple, Unpack

Ts = TypeVarTuple("Ts")

EPOLLIN = getattr(select, "EPOLLIN", 0)

_AT_ONCE = 16
"""How many ready pipes are taken from the kernel together; the rest are ready the next time too."""


def _same_epoll(selector: selectors.BaseSelector) -> "select.epoll | None":
    """The set that this selector watches, to be asked without its bookkeeping (on Linux)."""
    if not isinstance(selector, selectors.EpollSelector):
        return None
    return select.epoll.fromfd(os.dup(selector.fileno()))


class _Selector(selectors.DefaultSelector):
    """Waits like any selector, and serves the readers it was given itself."""

    def __init__(self) -> None:
        super().__init__()
        self.readers: dict[int, Callable[[], object]] = {}
        self.stirred = False
        """True if the loop has something to do now."""
        self.failed: Callable[[dict[str, Any]], None] | None = None
        self._epoll = _same_epoll(self)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready, less what was taken care of."""
        if self._epoll is None or (timeout is not None and timeout <= 0):
            return super().select(timeout)  # the loop has something to do, and that comes first
        until = None if timeout is None else monotonic() + timeout
        poll, readers = self._epoll.poll, self.readers
        while True:
            self.stirred = False
            ready = poll(timeout, _AT_ONCE)
            for fd, events in ready:
                reader = readers.get(fd)
                if reader is None or events != EPOLLIN:
                    # Whoever else is ready, a signal included, has its turn at once.
                    return super().select(0)
                try:
                    reader()
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:  # noqa: BLE001  (as the loop does with its callbacks)
                    self._complain(reader, error)
            if self.stirred or not ready:
                return []
            if until is not None:
                timeout = until - monotonic()
                if timeout <= 0:
                    return []

    def close(self) -> None:
        """Let go of what is watched."""
        if self._epoll is not None:
            self._epoll.close()
        super().close()

    def _complain(self, reader: Callable[[], object], error: BaseException) -> None:
        assert self.failed is not None
        self.failed({"message": f"exception in reader {reader!r}", "exception": error})


class DoorwayLoop(asyncio.SelectorEventLoop):
    """asyncio's own loop; readers added to it may run inside its selector."""

    def __init__(self) -> None:
        self._doorway = _Selector()
        super().__init__(self._doorway)
        self._doorway.failed = self.call_exception_handler

    async def shutdown_default_executor(self, *within: Any, **how: Any) -> None:
        """Wait for the threads that were lent out; there is none where no more can be had."""
        with contextlib.suppress(RuntimeError):
            await super().shutdown_default_executor(*within, **how)

    def add_reader(self, fd: Any, callback: Callable[[Unpack[Ts]], Any], *args: *Ts) -> None:
        """Call back whenever there is something to read."""
        super().add_reader(fd, callback, *args)
        number = fd if isinstance(fd, int) else fd.fileno()
        self._doorway.readers[number] = partial(callback, *args) if args else callback

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
