"""Returning freed memory to the system."""

import sys
from functools import cache

LARGE = 256 * 1024
"""The size from which blocks are mapped separately."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


@cache
def map_large_blocks_apart() -> None:
    """Make glibc return large blocks to the system as soon as they are freed.

    By default it does so only until the first one is freed: then it expects more of that size, and
    keeps the memory of a burst of large messages forever.
    """
    if sys.platform != "linux":
        return
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # only glibc has it
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, LARGE)
        mallopt(_M_TRIM_THRESHOLD, LARGE)


def give_back_memory() -> None:
    """Return freed memory to the system now; glibc would keep most of it."""
    if sys.platform != "linux":
        return
    import ctypes

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # only glibc has it
    if trim is not None:
        trim(0)
