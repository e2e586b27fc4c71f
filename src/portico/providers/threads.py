"""Daemon threads for plain functions, so that one that never returns holds up nobody.

The standard pool is small and is joined at exit: a few hung handlers would starve all others
and keep the process from ending.
"""

import asyncio
import threading
from collections.abc import Callable
from contextvars import Context as Variables
from contextvars import copy_context
from queue import Empty, SimpleQueue
from typing import Any

from portico.model.errors import ToolError
from portico.providers.handler_exceptions import NotAnException

MAX_THREADS = 512
IDLE_S = 10.0

_Job = tuple["asyncio.Future[Any]", Variables, Callable[[], Any]]


class ThreadsExhausted(ToolError):
    """As many plain functions run as there may be threads."""


class Threads:
    """Runs plain functions, each in a thread of its own, reusing those that are idle."""

    def __init__(self, most: int = MAX_THREADS) -> None:
        self._most = most
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._idle = 0
        self._count = 0
        self._lock = threading.Lock()

    async def run(self, function: Callable[[], Any]) -> Any:
        """Call a function off the event loop and wait for what it returns."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        with self._lock:
            start = not self._idle
            if start:
                if self._count >= self._most:
                    words = f"{self._most} plain functions are running already"
                    raise ThreadsExhausted(f"{words}: try again when some are done")
                self._count += 1
            else:
                self._idle -= 1
        if start:
            self._start()
        # Not before: what is refused must not be done by another thread later.
        self._jobs.put((future, copy_context(), function))
        return await future

    def _start(self) -> None:
        try:
            threading.Thread(target=self._work, name="portico-handler", daemon=True).start()
        except RuntimeError as error:  # the system has no more of them
            with self._lock:
                self._count -= 1
            raise ThreadsExhausted(f"{error}: try again when some are done") from None

    def _work(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=IDLE_S)
            except Empty:
                with self._lock:
                    # A job may have been promised to this thread just now.
                    if self._idle and self._jobs.empty():
                        self._idle -= 1
                        self._count -= 1
                        return
                continue
            _do(job)
            with self._lock:
                self._idle += 1


def _do(job: _Job) -> None:
    future, variables, function = job
    try:
        value, error = variables.run(function), None
    except BaseException as raised:  # noqa: BLE001  (it is handed to the one who waits)
        value, error = None, raised
    loop = future.get_loop()
    try:
        loop.call_soon_threadsafe(_settle, future, value, error)
    except RuntimeError:
        return  # the loop has closed: nobody waits any more


def _settle(future: "asyncio.Future[Any]", value: Any, error: BaseException | None) -> None:
    if future.done():
        return  # cancelled meanwhile
    if isinstance(error, StopIteration | GeneratorExit):  # which mean something to who awaits
        error = NotAnException(error)
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(value)
