"""Tasks that run up to their first wait before they are returned.

On Python 3.11 this needs parts of asyncio that are documented for other implementations of tasks
only, and a replaced method of the loop. All of that goes when 3.12 is the lowest version.
"""

import asyncio
import contextvars
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")
_Step = tuple[Callable[[], object], contextvars.Context]
"""The first step of a task, and the context that it runs in."""


def start_now(work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    """Start a task and run it up to its first wait: it may be done when this returns."""
    loop = asyncio.get_running_loop()
    if sys.version_info >= (3, 12):
        return asyncio.Task(work, loop=loop, eager_start=True)
    # A task of Python 3.11 schedules its first step with `call_soon`: capture it there.
    steps: list[_Step] = []
    loop.call_soon = partial(_capture, steps)  # type: ignore[assignment,method-assign]
    try:
        task = asyncio.Task(work, loop=loop)
    finally:
        del loop.call_soon
    ((step, context),) = steps
    outer = asyncio.current_task(loop)
    if outer is not None:
        asyncio.tasks._leave_task(loop, outer)
    try:
        context.run(step)
    finally:
        if outer is not None:
            asyncio.tasks._enter_task(loop, outer)
    return task


# At module level: a nested function would evaluate its type hints on every call.
def _capture(
    steps: list[_Step], step: Callable[[], object], *_: object, context: contextvars.Context
) -> None:
    """Keep a step instead of scheduling it."""
    steps.append((step, context))
