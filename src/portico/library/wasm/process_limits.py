"""The limits of a worker process itself, beside those of wasmtime.

An address-space limit would keep wasmtime from making any memory, since it reserves gigabytes for
each. Memory that can be written is limited instead, and what is in use is watched.
"""

import ctypes
import gc
import os
import resource
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from portico.library.wasm.settings import MB, HostSettings

_BASE_MB = 384
"""Python, wasmtime, stacks of threads, and values on their way."""
_WATCH_S = 0.1
_MAX_FILES = 1024


def memory_limit(settings: HostSettings) -> int:
    """Return how many bytes a worker may use: its own, and all instances of its component."""
    limits = settings.limits
    return int((_BASE_MB + limits.memory_mb * limits.concurrency) * MB)


def limit_process(settings: HostSettings) -> None:
    """Limit this process for the rest of its life."""
    for kind, limit in (
        # Twice: the watch ends a worker in words, before the system ends it without.
        (resource.RLIMIT_DATA, 2 * memory_limit(settings)),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, _MAX_FILES),
    ):
        _, hard = resource.getrlimit(kind)
        least = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(kind, (least, least))


def trim_memory() -> None:
    """Return unused memory to the system, where that is possible."""
    gc.collect()
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # another C library has no such function
            ctypes.CDLL(None).malloc_trim(0)


def watch_memory(settings: HostSettings, exceeded: Callable[[], object]) -> None:
    """Call a function from another thread once the process uses more memory than it may."""
    if not os.path.exists("/proc/self/statm"):
        return
    limit, page = memory_limit(settings), os.sysconf("SC_PAGE_SIZE")

    def watch() -> None:
        while True:
            with open("/proc/self/statm", "rb") as file:
                used = int(file.read().split()[1]) * page
            if used > limit:
                exceeded()
                return
            time.sleep(_WATCH_S)

    threading.Thread(target=watch, daemon=True, name="memory").start()
