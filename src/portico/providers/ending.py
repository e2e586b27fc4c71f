"""Tells the end of a call from an exception that only looks like one."""

import asyncio


def ends_call(error: BaseException) -> bool:
    """True if whoever runs the call ends it: by cancelling its task, or by closing it unfinished.

    Code that waits for something cancelled elsewhere gets the same CancelledError, though nobody
    has cancelled its own call, and extensions panic with what is no Exception.
    """
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is None or task.cancelling() > 0
    return isinstance(error, GeneratorExit)
