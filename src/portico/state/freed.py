"""Memory that was needed for a moment."""

import sys


def give_back_memory() -> None:
    """What was freed goes back to the system at once, of which glibc would keep most for good."""
    if sys.platform != "linux":
        return
    import ctypes

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # only glibc has it
    if trim is not None:
        trim(0)
