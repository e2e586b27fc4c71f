"""Keeps other processes of the same user from reading this process's memory and environment."""

import os
import sys

DEBUGGABLE = "PORTICO_DEBUGGABLE"
"""A variable that, if set, lets debuggers and profilers attach."""
_PR_SET_DUMPABLE = 4


def harden() -> None:
    """Close this process's environment, memory and open files to all users but root.

    A server runs as the same user, and the environment holds the secrets of all servers.
    """
    if sys.platform != "linux" or os.environ.get(DEBUGGABLE):
        return
    try:
        import ctypes

        done = ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) == 0
    except (ImportError, OSError, AttributeError):
        done = False
    if not done:
        print(  # noqa: T201
            "portico: cannot close /proc to other processes of this user: prctl failed; "
            "servers can read Portico's environment",
            file=sys.stderr,
        )
