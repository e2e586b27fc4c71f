"""Reads the end of a log that is still written to, and rotated when full."""

import os
import time
from collections.abc import Callable, Iterator
from typing import BinaryIO, Self

_POLL_S = 0.2
_MAX_LINE = 1_000_000


class LogTail:
    """Follows a log from its current end."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._rest = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def start(self) -> int:
        """Start at the end of the log; return its size."""
        self._file = _open(self._path)
        return 0 if self._file is None else self._file.seek(0, os.SEEK_END)

    def read_new(self) -> Iterator[bytes]:
        """Yield new complete lines; pause briefly if there are none."""
        if self._file is None:
            self._file = _open(self._path)
        data = b"" if self._file is None else self._file.read()
        if not data:
            if not self._reopen_if_rotated():
                time.sleep(_POLL_S)
            return
        *complete, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _MAX_LINE:
            self._rest = b""
        yield from complete

    def _reopen_if_rotated(self) -> bool:
        """Reopen the log if it was replaced or truncated."""
        file = self._file
        if file is None:
            return False
        try:
            now = os.stat(self._path)
        except OSError:
            return False  # its replacement is about to be created
        ours = os.fstat(file.fileno())
        if os.path.samestat(now, ours) and now.st_size >= file.tell():
            return False
        # Lines written between the last read and the rotation are read first.
        if not os.path.samestat(now, ours) and ours.st_size > file.tell():
            return True
        file.close()
        self._file, self._rest = _open(self._path), b""
        return True


def last_lines(path: str, count: int, matches: Callable[[bytes], bool], upto: int) -> list[bytes]:
    """The last matching lines, oldest first, including those of the rotated file."""
    found: list[bytes] = []
    for file, end in ((path, upto), (f"{path}.1", None)):
        if len(found) >= count:
            break
        try:
            with open(file, "rb") as log:
                data = log.read() if end is None else log.read(end)
        except OSError:
            continue
        for line in reversed(data.splitlines()):
            if len(found) >= count:
                break
            if matches(line):
                found.append(line)
    return found[::-1]


def _open(path: str) -> BinaryIO | None:
    try:
        return open(path, "rb")
    except OSError:
        return None
