"""The lock that makes one of several processes with the same config the gateway's owner.

The kernel releases a lock when its process ends, however it ends, so the file alone proves nothing.
The file contains the name of the owner's control socket.
"""

import contextlib
import fcntl
import os
from typing import Self

from portico.core.state.files import make_private
from portico.edge.windows.control_sockets import SUFFIX

_SERVE, _LOCK = "serve-", ".lock"
_MAX_NAME = 100
_OPEN = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)


class OwnerLock:
    """The lock of one gateway, held until it is released or this process ends."""

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self.fd = fd

    @classmethod
    def acquire(cls, folder: str, key: str) -> Self | None:
        """Take the lock; return None if another process holds it. Raise OSError on failure."""
        make_private(folder)
        path = _path(folder, key)
        while True:
            fd = os.open(path, _OPEN, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # The last owner may have removed the file since we opened it.
                if _is_at(path, fd):
                    os.ftruncate(fd, 0)
                    return cls(path, fd)
            except BlockingIOError:
                os.close(fd)
                return None
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)

    def announce(self, name: str) -> None:
        """Write the name of our control socket; raise OSError if that fails."""
        os.pwrite(self.fd, name.encode() + b"\n", 0)

    def hand_over(self) -> None:
        """Leave the lock to the process that inherited it."""
        os.close(self.fd)
        self.fd = -1

    def release(self) -> None:
        """Release the lock and remove its file."""
        if self.fd < 0:
            return
        with contextlib.suppress(OSError):
            if _is_at(self.path, self.fd):
                os.unlink(self.path)
        os.close(self.fd)
        self.fd = -1


def owner_of(folder: str, key: str) -> str:
    """Return the name of the owner's control socket; empty if no owner announced one."""
    try:
        with open(_path(folder, key), "rb") as file:
            content = file.read(_MAX_NAME)
    except OSError:
        return ""
    name = content.decode(errors="replace").removesuffix("\n")
    is_whole = content.endswith(b"\n") and name.removesuffix(SUFFIX).isdecimal()
    return name if is_whole and name.endswith(SUFFIX) else ""


def owners_of(folder: str, key: str) -> list[str]:
    """Return the sockets of this gateway's owners, one per account; some may have ended."""
    try:
        locks = [name for name in sorted(os.listdir(folder)) if name.endswith(_LOCK)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    keys = [name.removeprefix(_SERVE).removesuffix(_LOCK) for name in locks]
    found = (owner_of(folder, one) for one in keys if one == key or one.startswith(f"{key}-"))
    return [name for name in found if name]


def lock_exists(folder: str, key: str) -> bool:
    """True if this gateway has an owner, or had one that was killed."""
    return os.path.exists(_path(folder, key))


def _path(folder: str, key: str) -> str:
    return os.path.join(folder, f"{_SERVE}{key}{_LOCK}")


def _is_at(path: str, fd: int) -> bool:
    """True if the path still leads to this file."""
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return False
    here = os.fstat(fd)
    return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)
