"""Which workers have ended: each holds a lock as long as its process lives.

The kernel releases a lock when its process ends, however it ends. A lease is valid for some time
after that, and is all there is where locks are not supported.
"""

import fcntl
import os
from contextlib import suppress

from portico.core.state.files import make_private

_OPEN = os.O_RDWR | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)


class WorkerLocks:
    """The locks of all workers of one store, as files of a folder; without one, none has ended."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self._held: dict[str, int] = {}

    def hold(self, owner: str) -> None:
        """Hold the lock of a worker of this process from now on, if that is possible."""
        if self._folder is None or owner in self._held:
            return
        with suppress(OSError):
            make_private(self._folder)
            handle = os.open(self._path(owner), _OPEN | os.O_CREAT, 0o600)
            self._held[owner] = handle
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:  # an unlocked file would say that the worker has ended
                os.unlink(self._path(owner))

    def has_ended(self, owner: str) -> bool:
        """True if the process of a worker is known to have ended."""
        if self._folder is None or owner in self._held:
            return False
        try:
            handle = os.open(self._path(owner), _OPEN)
        except OSError:
            return False  # its lease decides
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return False
        finally:
            os.close(handle)
        return True

    def sweep(self, needed: set[str]) -> None:
        """Remove the files of workers that have ended, but for those whose tasks need them."""
        if self._folder is None or not os.path.isdir(self._folder):
            return
        for owner in os.listdir(self._folder):
            if owner not in needed and self.has_ended(owner):
                with suppress(OSError):
                    os.unlink(self._path(owner))

    def close(self) -> None:
        """Release the locks of this process, and remove their files."""
        for owner, handle in self._held.items():
            with suppress(OSError):
                os.unlink(self._path(owner))
            os.close(handle)
        self._held.clear()

    def _path(self, owner: str) -> str:
        return os.path.join(self._folder or "", owner)
