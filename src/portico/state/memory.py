"""Memory that was needed for a moment."""

import sys
from functools import cache

LARGE = 256 * 1024
"""Blocks from this size on are mapped apart."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


@cache
def map_large_blocks_apart() -> None:
    """From now on, large blocks go back to the system as soon as they are freed.

    glibc does so only until the first of them is freed: then it expects more of that size, and
    keeps what a burst of large messages needed for good.
    """
    if sys.platform != "linux":
        return
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # only glibc has it
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, LARGE)
        mallopt(_M_TRIM_THRESHOLD, LARGE)


def give_back_memory() -> None:
    """What was freed goes back to the system at once, of which glibc would keep most for good."""
    if sys.platform != "linux":
        return
    import ctypes

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # only glibc has it
    if trim is not None:
        trim(0)
