"""Reads the process table once for all children that are being ended at the same time."""

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable

from portico.process.process_tree import ProcessTable, ProcessTree

_SHARE = 4
"""The thread rests this many times as long as it has worked: a fifth of a core at most."""


class Sweeper:
    """A thread that looks for families; those that ask while it works or rests share a reading."""

    def __init__(self) -> None:
        self._state = threading.Condition()
        self._asked: list[tuple[ProcessTree, Callable[[bool], None]]] = []
        self._thread: threading.Thread | None = None

    async def look(self, family: ProcessTree) -> bool:
        """Find all of a family; False if it is known that none live."""
        loop = asyncio.get_running_loop()
        found: asyncio.Future[bool] = loop.create_future()

        def settle(lives: bool) -> None:
            if not found.done():
                found.set_result(lives)

        def tell(lives: bool) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has closed: nobody waits any more
                loop.call_soon_threadsafe(settle, lives)

        with self._state:
            self._asked.append((family, tell))
            if self._thread is None:
                self._begin()
            self._state.notify()
        return await found

    def _begin(self) -> None:
        thread = threading.Thread(target=self._work, name="portico-sweeper", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads
            self._sweep()
        else:
            self._thread = thread

    def _work(self) -> None:
        while True:
            with self._state:
                self._state.wait_for(lambda: self._asked)
            began = time.monotonic()
            self._sweep()
            time.sleep(_SHARE * (time.monotonic() - began))

    def _sweep(self) -> None:
        asked, self._asked = self._asked, []
        try:
            census = ProcessTable([family for family, _ in asked])
        except OSError:  # no file descriptors: the guardian has some of its own
            census = None
        for family, tell in asked:
            tell(census is None or family.look(census))


SWEEPER = Sweeper()
"""One for all children of this process."""
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=SWEEPER.__init__)  # type: ignore[misc]  # it has no thread
