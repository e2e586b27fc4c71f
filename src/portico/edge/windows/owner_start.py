"""Starts the owner of a gateway: a process that runs as long as a window or work needs it.

It is a new interpreter outside the window's process tree, which clients end as a whole. This
module imports little, so that a window starts the owner before it loads the rest.
"""

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from portico.core.config.paths import control_folder, owner_log, working_folder
from portico.core.model.errors import PorticoError
from portico.edge.windows.owner_lock import OwnerLock, lock_exists
from portico.upstream.process.family import gateways_above

_MAX_LOG = 1_000_000


class StartedOwner(NamedTuple):
    """An owner that a window has started, and that waits for the window's request."""

    lock: OwnerLock
    socket: socket.socket
    launcher: "subprocess.Popen[bytes]"
    """The process that becomes the owner's parent, and exits at once."""

    def failed(self) -> int:
        """Return the errno of a launcher that has failed, once its end of the socket is closed."""
        self.launcher.kill()
        return max(0, self.launcher.wait())


def can_start_owners() -> bool:
    """True if there is an interpreter to run an owner."""
    return bool(sys.executable) and not getattr(sys, "frozen", False)


def lock_keys(folder: str, key: str, version: str, account: str) -> tuple[str, ...]:
    """Return the lock keys to try, in order: the shared one, and one per further account."""
    key = f"{key}-{version}"
    if not account:
        return (key,)
    own = f"{key}-{account}"
    return (own, key) if lock_exists(folder, own) else (key, own)


def start_early(
    key: Callable[[], str], account: Callable[[], str], owner: Sequence[str]
) -> StartedOwner | None:
    """Start the owner if there is none yet: it is loaded while this process is. Return None if the
    window has to do it later, or serves by itself."""
    if not can_start_owners() or not working_folder():
        return None
    with contextlib.suppress(OSError, PorticoError):
        folder = control_folder()
        [first, *_] = lock_keys(folder, key(), owner[0], account())
        lock = None if gateways_above() else OwnerLock.acquire(folder, first)
        if lock is not None:
            return start_owner(lock, owner, owner_log)
    return None


def start_owner(lock: OwnerLock, owner: Sequence[str], log: Callable[[], str]) -> StartedOwner:
    """Start the owner with the lock and a connection to it; raise OSError on failure, and release
    the lock."""
    with contextlib.ExitStack() as stack:
        stack.callback(lock.release)
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        stack.callback(ours.close)
        with theirs, open(_log_file(log), "ab", buffering=0) as errors:
            files = (lock.fd, theirs.fileno())
            words = [*map(str, files), lock.path, *owner]
            launcher = subprocess.Popen(
                [sys.executable, "-P", "-m", "portico", "owner", *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                pass_fds=files,
                start_new_session=True,
            )
        stack.pop_all()
    return StartedOwner(lock, ours, launcher)


def _log_file(log: Callable[[], str]) -> str:
    """Create the file for the owner's stderr, or empty it if it is large."""
    try:
        path = log()
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    except OSError:
        return os.devnull
    with contextlib.suppress(OSError):
        if os.fstat(fd).st_size > _MAX_LOG:
            os.ftruncate(fd, 0)
    os.close(fd)
    return path
