"""Tells the end of a call from an exception that only looks like one, and what a group of them
means."""

import asyncio
from collections.abc import Iterator

from portico.model.errors import PorticoError


class NotAnException(RuntimeError):
    """A handler raised a BaseException that is not its own end; the message names the type."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"it raised {type(error).__name__}")


def ends_call(error: BaseException) -> bool:
    """True if whoever runs the call ends it: by cancelling its task, or by closing it unfinished.

    Code that waits for something cancelled elsewhere gets the same CancelledError, though nobody
    has cancelled its own call, and extensions panic with what is no Exception.
    """
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is None or task.cancelling() > 0
    return isinstance(error, GeneratorExit)


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The exceptions in a group, as they follow each other; one that is no group is its own."""
    if not isinstance(error, BaseExceptionGroup):
        yield error
        return
    for inner in error.exceptions:
        yield from leaves(inner)


def intended_error(group: BaseExceptionGroup) -> PorticoError | None:
    """What a handler said through a task group: the first, if all in it is meant for the asker."""
    said = [error for error in leaves(group) if isinstance(error, PorticoError)]
    return said[0] if len(said) == sum(1 for _ in leaves(group)) else None
