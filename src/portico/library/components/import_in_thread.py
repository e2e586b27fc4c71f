"""Loads users' files in a thread, so that an import that hangs or exits stops nothing else."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from portico.core.model.errors import PorticoError
from portico.library.components.classify import ComponentError
from portico.library.functions.threads import Threads

T = TypeVar("T")


class ImportTimeout(ComponentError):
    """A file whose import did not end in time; its thread may run forever."""


# Threads of their own: an import that hangs keeps its thread, and must not delay the exit.
_THREADS = Threads()


async def load_in_thread(load: Callable[[], T], file: str, within_s: float, key: str = "") -> T:
    """Return what a function loads, in a daemon thread; raises PorticoError.

    `key` is the config key of the limit. Python cannot end a thread: an import that takes too
    long is left running.
    """

    def guarded() -> T:
        try:
            return load()
        except PorticoError:
            raise
        except BaseException as error:
            raise ComponentError(f"{file}: {type(error).__name__}: {error}") from error

    try:
        async with asyncio.timeout(within_s):
            loaded: T = await _THREADS.run(guarded)
            return loaded
    except TimeoutError:
        how = f"find what it waits for{f', or raise {key}' if key else ''}"
        raise ImportTimeout(f"{file}: not imported within {within_s:g} s; {how}") from None
