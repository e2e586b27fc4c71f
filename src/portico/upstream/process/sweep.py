"""Reads the process table once for all children that end at the same time."""

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable

from portico.upstream.process.process_tree import ProcessTable, ProcessTree

_REST_FACTOR = 4
"""The thread sleeps this many times as long as it worked: a fifth of a core at most."""


class Sweeper:
    """A thread that finds descendants; requests that arrive meanwhile share one snapshot."""

    def __init__(self) -> None:
        self._state = threading.Condition()
        self._pending: list[tuple[ProcessTree, Callable[[bool], None]]] = []
        self._thread: threading.Thread | None = None

    async def find_descendants(self, tree: ProcessTree) -> bool:
        """Find all processes of a tree; return False if certainly none live."""
        loop = asyncio.get_running_loop()
        found: asyncio.Future[bool] = loop.create_future()

        def settle(lives: bool) -> None:
            if not found.done():
                found.set_result(lives)

        def resolve(lives: bool) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has closed
                loop.call_soon_threadsafe(settle, lives)

        with self._state:
            self._pending.append((tree, resolve))
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
                self._state.wait_for(lambda: self._pending)
            began = time.monotonic()
            self._sweep()
            time.sleep(_REST_FACTOR * (time.monotonic() - began))

    def _sweep(self) -> None:
        pending, self._pending = self._pending, []
        try:
            snapshot = ProcessTable([tree for tree, _ in pending])
        except OSError:  # no file descriptors left; the guardian has its own
            snapshot = None
        for tree, resolve in pending:
            resolve(snapshot is None or tree.find_descendants(snapshot))


SWEEPER = Sweeper()
"""One for all children of this process."""
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=SWEEPER.__init__)  # type: ignore[misc]  # it has no thread
