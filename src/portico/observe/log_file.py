"""Files of lines that are appended to, by several processes at once."""

import contextlib
import errno
import os
import stat
from collections.abc import Generator, Sequence

_FILE_MODE = 0o600
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
_MAX_ATTEMPTS = 5
"""How often a file may be exchanged under our feet before that is somebody's doing."""


def check_writable(path: str) -> None:
    """Open a file, which is made for the user alone; OSError if that cannot be."""
    with _opened(path):
        pass


def append_bounded(path: str, lines: Sequence[bytes], limit: int) -> int:
    """Add whole lines, and return how many: all of them, or those that a pipe has room for.

    A file that would grow past the limit becomes `.1`. OSError if nothing can be written,
    BlockingIOError if another process is at it.
    """
    data = b"".join(lines)
    for _ in range(_MAX_ATTEMPTS):
        with _opened(path) as handle:
            _lock(handle)
            if not _is_at(handle, path):
                continue  # another process has begun a new one
            now = os.fstat(handle)
            if not stat.S_ISREG(now.st_mode):
                return _write_each(handle, lines)
            size = now.st_size
            if size and size + len(data) > limit:
                os.replace(path, f"{path}.1")
                continue
            _write_whole(handle, data, size)
            return len(lines)
    raise OSError(errno.EAGAIN, "others keep replacing it")


@contextlib.contextmanager
def _opened(path: str) -> Generator[int, None, None]:
    # Opened each time, so that the file may be moved away; never waits for a pipe's reader.
    handle = os.open(path, _FLAGS | getattr(os, "O_NONBLOCK", 0), _FILE_MODE)
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


def _write_each(handle: int, lines: Sequence[bytes]) -> int:
    """A pipe takes a short line whole or not at all, and gives nothing back."""
    for count, line in enumerate(lines):
        try:
            os.write(handle, line)
        except BlockingIOError:
            if count:
                return count
            raise OSError(errno.ENOBUFS, "the pipe is full") from None
    return len(lines)
