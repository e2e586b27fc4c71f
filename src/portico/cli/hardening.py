"""Keeps other processes of the same user from looking into ours."""

import os
import sys

DEBUGGABLE = "PORTICO_DEBUGGABLE"
"""A variable; if it is set, debuggers and profilers may attach."""
_PR_SET_DUMPABLE = 4


def harden() -> None:
    """Close our environment, memory and open files to everybody but root.

    A server runs as the same user, and our environment has the secrets of all servers.
    """
    if sys.platform != "linux" or os.environ.get(DEBUGGABLE):
        return
    try:
        import ctypes

        done = ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) == 0
    except (ImportError, OSError, AttributeError):
        done = False
    if not done:
        print(
            "portico: cannot close /proc to other processes of this user: prctl failed; "
            "servers can read Portico's environment",
            file=sys.stderr,
        )
