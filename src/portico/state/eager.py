"""Tasks that run up to their first wait at once, instead of in the next turn of the event loop."""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar

T = TypeVar("T")


def _start_by_interpreter(work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    loop = asyncio.get_running_loop()
    return asyncio.Task(work, loop=loop, eager_start=True)  # type: ignore[call-arg,unused-ignore]


def _start_by_hand(work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    """The same for Python 3.11, whose tasks only know `call_soon`: what a new task hands to that
    is its first step, and is taken here."""
    loop = asyncio.get_running_loop()
    steps: list[tuple[Callable[[], object], Context]] = []

    def call_soon(step: Callable[[], object], *args: object, context: Context) -> None:
        steps.append((step, context))

    loop.call_soon = call_soon  # type: ignore[assignment,method-assign]
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


start_now: Callable[[Coroutine[Any, Any, T]], "asyncio.Task[T]"] = (
    _start_by_interpreter if sys.version_info >= (3, 12) else _start_by_hand
)
"""Start a task and run it up to its first wait: it may be done already when this returns."""
