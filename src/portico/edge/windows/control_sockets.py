"""The control sockets of running Porticos: one per process, named by its pid, in a user folder."""

import contextlib
import errno
import os
import socket
import sys
from collections.abc import Iterator

SUFFIX = ".sock"
_MAX_PATH = 100
"""A socket address has room for 108 bytes, on some systems for 104."""


def socket_names(folder: str) -> list[str]:
    """Return the names of the sockets in the folder; some may belong to dead processes."""
    try:
        return sorted(name for name in os.listdir(folder) if name.endswith(SUFFIX))
    except (FileNotFoundError, NotADirectoryError):
        return []


def listen(folder: str, name: str) -> socket.socket:
    """Return a new listening socket, private to the user; raise OSError on failure."""
    # Renamed once it listens: a socket that does not listen counts as a dead process's.
    draft = f"{name}.new"
    listener = socket.socket(socket.AF_UNIX)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, draft))
        with _short_path(folder, draft) as path:
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


def connect(sock: socket.socket, folder: str, name: str) -> bool:
    """Connect; return False and remove the socket if its process is dead.

    Raise OSError if another user owns it.
    """
    try:
        with _short_path(folder, name) as path:
            sock.connect(path)
    except FileNotFoundError:
        return False
    except ConnectionRefusedError:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, name))
        return False
    if not is_same_user(sock):
        raise OSError(errno.EPERM, f"{os.path.join(folder, name)} belongs to another user")
    return True


def remove_dead_sockets(folder: str) -> None:
    """Remove the sockets of dead processes."""
    for name in socket_names(folder):
        with socket.socket(socket.AF_UNIX) as probe:
            probe.setblocking(False)
            # A busy socket, or one of another user, stays.
            with contextlib.suppress(OSError):
                connect(probe, folder, name)


def is_same_user(peer: socket.socket) -> bool:
    """True if the peer is our user, or the kernel cannot tell; the folder is private anyway."""
    credentials = _credentials(peer)
    return credentials is None or credentials[1] == os.geteuid()


def pid_of(peer: socket.socket) -> int:
    """Return the process that connected; 0 if the kernel cannot tell."""
    credentials = _credentials(peer)
    return 0 if credentials is None else credentials[0]


def _credentials(peer: socket.socket) -> tuple[int, int] | None:
    """Return the pid and the user of a peer."""
    option: int | None = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return None
    # struct ucred: pid, uid and gid, four bytes each.
    raw: bytes = peer.getsockopt(socket.SOL_SOCKET, option, 12)
    pid, user = (int.from_bytes(raw[at : at + 4], sys.byteorder) for at in (0, 4))
    return pid, user


@contextlib.contextmanager
def _short_path(folder: str, name: str) -> Iterator[str]:
    """Yield a path that fits into a socket address, however deep the folder is."""
    path = os.path.join(folder, name)
    if len(os.fsencode(path)) <= _MAX_PATH:
        yield path
        return
    if not sys.platform.startswith("linux"):
        raise OSError(f"{folder}: the path is too long for a socket; use a shorter PORTICO_HOME")
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{handle}/{name}"
    finally:
        os.close(handle)
