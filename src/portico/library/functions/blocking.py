"""The context of a plain function: the same methods, without `await`."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from portico.core.model.context import Context, Values
from portico.core.model.task_control import RunningTask

_CALLS = frozenset(
    {
        *(
            "ask",
            "begin_task",
            "call_tool",
            "close_stream",
            "elicit",
            "elicit_url",
            "progress",
            "roots",
            "sample",
        ),
        *("log", "debug", "info", "warning", "error"),
    }
)


class BlockingContext:
    """A context for use in a thread; its methods wait for the event loop to run them.

    A plain function may only return the coroutine of an `async` one. That coroutine runs on the
    loop, so there the methods stay async: blocking the loop on itself would never return.
    """

    __slots__ = ("_context", "_loop", "_running")

    def __init__(self, context: Context, loop: asyncio.AbstractEventLoop) -> None:
        object.__setattr__(self, "_context", context)
        object.__setattr__(self, "_loop", loop)
        object.__setattr__(self, "_running", set())

    def __setattr__(self, name: str, value: Any) -> None:
        # `context.state = ...` must reach the real context, which keeps it between rounds.
        setattr(self._context, name, value)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._context, name)
        if name == "call_tool":
            return self._blocking(value, cancellable=True)
        if name == "store":
            return _BlockingValues(value, self._blocking)
        if name == "task" and value is not None:
            return _BlockingTask(value, self._blocking)
        return self._blocking(value) if name in _CALLS else value

    def _blocking(
        self, call: Callable[..., Coroutine[Any, Any, Any]], *, cancellable: bool = False
    ) -> Callable[..., Any]:
        def wait(*args: Any, **kwargs: Any) -> Any:
            future = asyncio.run_coroutine_threadsafe(call(*args, **kwargs), self._loop)
            if cancellable:
                self._running.add(future)
                if self._context.cancelled:  # before it was added
                    future.cancel()
            try:
                return future.result()
            finally:
                self._running.discard(future)

        return call if _is_running(self._loop) else wait


class _BlockingValues:
    """The values of a plain function's session; its methods wait too."""

    def __init__(self, values: Values, blocking: Callable[..., Callable[..., Any]]) -> None:
        self.get, self.set = blocking(values.get), blocking(values.set)
        self.increment, self.delete = blocking(values.increment), blocking(values.delete)
        self.keys, self.clear = blocking(values.keys), blocking(values.clear)


class _BlockingTask:
    """The task of a plain function; its methods wait too."""

    def __init__(self, task: RunningTask, blocking: Callable[..., Callable[..., Any]]) -> None:
        self._task = task
        self.id = task.id
        self.message = blocking(task.message)
        self.supplied_result = blocking(task.supplied_result, cancellable=True)

    @property
    def is_cancelled(self) -> bool:
        return self._task.is_cancelled


def cancel_running(context: BlockingContext) -> None:
    """Cancel the calls of other tools that a function waits for: its own call was cancelled."""
    context.cancelled = True
    for future in tuple(context._running):
        future.cancel()


def _is_running(loop: asyncio.AbstractEventLoop) -> bool:
    """True in the loop's own thread."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
