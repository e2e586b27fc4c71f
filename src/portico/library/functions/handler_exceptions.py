"""Classifies exceptions from handlers: the end of a call, a failure, or a group of them."""

import asyncio
from collections.abc import Iterator

from portico.core.model.errors import PorticoError


class NotAnException(RuntimeError):
    """A handler raised a BaseException that does not end its call; the message has the type."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"the handler raised {type(error).__name__}")


def ends_call(error: BaseException) -> bool:
    """True if the call itself ends: its task is cancelled, or its coroutine closed.

    A handler that awaits something cancelled elsewhere gets the same CancelledError without being
    cancelled, and extension modules raise panics that do not derive from Exception.
    """
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is None or task.cancelling() > 0
    return isinstance(error, GeneratorExit)


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions in a group and its subgroups; an ungrouped exception yields itself."""
    if not isinstance(error, BaseExceptionGroup):
        yield error
        return
    for inner in error.exceptions:
        yield from leaves(inner)


def intended_error(group: BaseExceptionGroup) -> PorticoError | None:
    """Return the first error of a group if all its errors are for the client, otherwise None."""
    errors = list(leaves(group))
    intended = [error for error in errors if isinstance(error, PorticoError)]
    return intended[0] if len(intended) == len(errors) else None
