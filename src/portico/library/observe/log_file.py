"""Log files to which several processes append lines."""

import contextlib
import errno
import os
import stat
from collections.abc import Generator, Sequence

_FILE_MODE = 0o600
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
_MAX_ATTEMPTS = 5
"""Attempts to open a file that other processes keep rotating."""


def check_writable(path: str) -> None:
    """Open a file, or create it readable by its user only; raises OSError."""
    with _opened(path):
        pass


def append_bounded(path: str, lines: Sequence[bytes], limit: int) -> int:
    """Append whole lines and return their number: all, or those that fit into a pipe.

    A file that would grow past the limit is renamed to `.1`. Raises OSError if nothing can be
    written, and BlockingIOError if another process holds the lock.
    """
    data = b"".join(lines)
    for _ in range(_MAX_ATTEMPTS):
        with _opened(path) as handle:
            _lock(handle)
            if not _is_at(handle, path):
                continue  # another process has rotated it
            now = os.fstat(handle)
            if not stat.S_ISREG(now.st_mode):
                return _write_each(handle, lines)
            size = now.st_size
            if size and size + len(data) > limit:
                os.replace(path, f"{path}.1")
                continue
            _write_whole(handle, data, size)
            return len(lines)
    raise OSError(errno.EAGAIN, "other processes keep replacing it")


@contextlib.contextmanager
def _opened(path: str) -> Generator[int, None, None]:
    # Opened for each batch, so that the file may be moved; never waits for a pipe's reader.
    handle = os.open(path, _FLAGS | getattr(os, "O_NONBLOCK", 0), _FILE_MODE)
    try:
        yield handle
    finally:
        os.close(handle)


def _lock(handle: int) -> None:
    """Lock it until it is closed. On file systems without locks, batches may be interleaved."""
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
        # A full disk takes a part: a line must not be cut off, nor be written twice.
        with contextlib.suppress(OSError):
            os.ftruncate(handle, size)
        raise


def _write_each(handle: int, lines: Sequence[bytes]) -> int:
    """Write line by line: a pipe takes a short line whole or not at all."""
    for count, line in enumerate(lines):
        try:
            os.write(handle, line)
        except BlockingIOError:
            if count:
                return count
            raise OSError(errno.ENOBUFS, "the pipe is full") from None
    return len(lines)
