"""The sockets of running Porticos: one a process, under its number, in a folder of the user's."""

import contextlib
import errno
import os
import socket
import sys
from collections.abc import Iterator

SUFFIX = ".sock"
_MAX_PATH = 100
"""A socket's address holds 108 bytes, on some systems 104."""


def names(folder: str) -> list[str]:
    """The sockets in the folder; some may be of dead processes."""
    try:
        return sorted(name for name in os.listdir(folder) if name.endswith(SUFFIX))
    except (FileNotFoundError, NotADirectoryError):
        return []


def listening(folder: str, name: str) -> socket.socket:
    """A new socket of this name, for the user alone; OSError if that is not possible here."""
    # It gets its name when it listens: one that does not is taken for a dead process's.
    draft = f"{name}.new"
    listener = socket.socket(socket.AF_UNIX)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, draft))
        with _short(folder, draft) as path:
            listener.bind(path)
        path = os.path.join(folder, draft)
        os.chmod(path, 0o600)
        listener.listen(128)
        os.replace(path, os.path.join(folder, name))
    except BaseException:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def connected(asker: socket.socket, folder: str, name: str) -> bool:
    """False if nobody listens any more; the socket is removed then. OSError if it is not ours."""
    try:
        with _short(folder, name) as path:
            asker.connect(path)
    except FileNotFoundError:
        return False
    except ConnectionRefusedError:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, name))
        return False
    if not is_ours(asker):
        raise OSError(errno.EPERM, f"{os.path.join(folder, name)} is another user's")
    return True


def clear_away(folder: str) -> None:
    """Remove what dead processes left."""
    for name in names(folder):
        with socket.socket(socket.AF_UNIX) as probe:
            probe.setblocking(False)
            # Too busy to let us in, or not ours to judge: then it stays.
            with contextlib.suppress(OSError):
                connected(probe, folder, name)


def is_ours(peer: socket.socket) -> bool:
    """The folder keeps others out; where the kernel says who it is, that is looked at too."""
    option: int | None = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return True
    # struct ucred: pid, uid and gid, four bytes each.
    said: bytes = peer.getsockopt(socket.SOL_SOCKET, option, 12)
    return int.from_bytes(said[4:8], sys.byteorder) == os.geteuid()


@contextlib.contextmanager
def _short(folder: str, name: str) -> Iterator[str]:
    """A path that fits into a socket's address, however deep the folder is."""
    path = os.path.join(folder, name)
    if len(os.fsencode(path)) <= _MAX_PATH:
        yield path
        return
    if not sys.platform.startswith("linux"):
        raise OSError(f"{folder} is too long a path for a socket")
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{handle}/{name}"
    finally:
        os.close(handle)
