"""Files of lines that are appended to, by several processes at once."""

import contextlib
import errno
import os
from collections.abc import Generator

_NEW = 0o600
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
_TRIES = 5
"""How often a file may be exchanged under our feet before that is somebody's doing."""


def append(path: str, data: bytes) -> None:
    """Add to a file, which is made for the user alone; OSError if that cannot be."""
    with _opened(path) as handle:
        os.write(handle, data)


def append_bounded(path: str, data: bytes, limit: int) -> None:
    """Add whole lines, all or none of them; a file that would grow past the limit becomes `.1`.

    OSError if it cannot be, BlockingIOError if another process is at it.
    """
    for _ in range(_TRIES):
        with _opened(path) as handle:
            _lock(handle)
            if not _is_at(handle, path):
                continue  # another process has begun a new one
            size = os.fstat(handle).st_size
            if size and size + len(data) > limit:
                os.replace(path, f"{path}.1")
                continue
            _write_whole(handle, data, size)
            return
    raise OSError(errno.EAGAIN, "others keep replacing it")


@contextlib.contextmanager
def _opened(path: str) -> Generator[int, None, None]:
    # Opened each time, so that the file may be moved away; never waits for a pipe's reader.
    handle = os.open(path, _FLAGS | getattr(os, "O_NONBLOCK", 0), _NEW)
    try:
        yield handle
    finally:
        os.close(handle)


def _lock(handle: int) -> None:
    """Until it is closed. Some file systems have no locks; then a batch may stand in another."""
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BlockingIOError(errno.EAGAIN, "another process is writing to it") from None
    except OSError:
        pass


def _is_at(handle: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def _write_whole(handle: int, data: bytes, size: int) -> None:
    written = 0
    try:
        while written < len(data):
            written += os.write(handle, data[written:])
    except OSError:
        # A full disk takes a part: a line must not end in the middle, nor be written twice.
        with contextlib.suppress(OSError):
            os.ftruncate(handle, size)
        raise
