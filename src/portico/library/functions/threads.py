"""Daemon threads for plain functions, so that a hung function blocks no other.

The standard pool is small and is joined at exit: a few hung handlers would starve all others
and keep the process from exiting.
"""

import asyncio
import threading
from collections.abc import Callable
from contextvars import Context as Variables
from contextvars import copy_context
from queue import Empty, SimpleQueue
from typing import Any

from portico.core.model.errors import ToolError
from portico.library.functions.handler_exceptions import NotAnException

MAX_THREADS = 512
IDLE_S = 10.0

_Job = tuple["asyncio.Future[Any]", Variables, Callable[[], Any]]


class ThreadsExhausted(ToolError):
    """All threads for plain functions are in use."""


class Threads:
    """Runs each plain function in its own thread, reusing idle threads."""

    def __init__(self, limit: int = MAX_THREADS) -> None:
        self._limit = limit
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._idle = 0
        self._count = 0
        self._lock = threading.Lock()

    async def run(self, function: Callable[[], Any]) -> Any:
        """Call a function off the event loop and return its value."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        with self._lock:
            start = not self._idle
            if start:
                if self._count >= self._limit:
                    why = f"the limit of {self._limit} running plain functions is reached"
                    raise ThreadsExhausted(f"{why}; try again later")
                self._count += 1
            else:
                self._idle -= 1
        if start:
            self._start()
        # Only now: a refused function must not run in another thread later.
        self._jobs.put((future, copy_context(), function))
        return await future

    def _start(self) -> None:
        try:
            threading.Thread(target=self._work, name="portico-handler", daemon=True).start()
        except RuntimeError as error:  # the system has no more threads
            with self._lock:
                self._count -= 1
            raise ThreadsExhausted(f"{error}; try again later") from None

    def _work(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=IDLE_S)
            except Empty:
                with self._lock:
                    # A job may have been assigned to this thread just now.
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
    except BaseException as raised:  # noqa: BLE001  (the awaiting task gets it)
        value, error = None, raised
    loop = future.get_loop()
    try:
        loop.call_soon_threadsafe(_settle, future, value, error)
    except RuntimeError:
        return  # the loop has closed


def _settle(future: "asyncio.Future[Any]", value: Any, error: BaseException | None) -> None:
    if future.done():
        return  # it was cancelled
    if isinstance(error, StopIteration | GeneratorExit):  # they would end the awaiting coroutine
        error = NotAnException(error)
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(value)
