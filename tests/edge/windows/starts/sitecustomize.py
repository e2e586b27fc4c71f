"""Faults of the start of an owner; Python imports this before the owner runs."""

import errno
import os
import sys

_FAULT = os.environ.get("OWNER_FAULT", "")


def no_fork() -> int:
    """Fail as on a system without room for a process."""
    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))


if "owner" in sys.orig_argv:
    if _FAULT == "no fork":
        os.fork = no_fork
    elif _FAULT == "upgraded":
        import portico

        portico.__version__ = "99.0"
    elif _FAULT == "removed":
        sys.modules["portico"] = None  # type: ignore[assignment]  # then it cannot be imported
