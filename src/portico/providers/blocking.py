"""The context as a plain function has it: the same calls, without `await`."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from portico.model.context import Context

_CALLS = frozenset(
    {
        *("ask", "close_stream", "elicit", "elicit_url", "progress", "roots", "sample"),
        *("log", "debug", "info", "warning", "error"),
    }
)


class BlockingContext:
    """Stands for a context in a thread; its calls wait for the event loop to do them.

    A plain function may be no more than the way to an `async` one, which runs on the loop and
    awaits: there the calls are as they are, since who waits on the loop for the loop never ends.
    """

    __slots__ = ("_context", "_loop")

    def __init__(self, context: Context, loop: asyncio.AbstractEventLoop) -> None:
        object.__setattr__(self, "_context", context)
        object.__setattr__(self, "_loop", loop)

    def __setattr__(self, name: str, value: Any) -> None:
        # `context.state = ...` is the call's own, and travels with its rounds.
        setattr(self._context, name, value)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._context, name)
        return self._blocking(value) if name in _CALLS else value

    def _blocking(self, call: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
        def wait(*args: Any, **kwargs: Any) -> Any:
            return asyncio.run_coroutine_threadsafe(call(*args, **kwargs), self._loop).result()

        return call if _is_running(self._loop) else wait


def _is_running(loop: asyncio.AbstractEventLoop) -> bool:
    """True in the loop's own thread."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
