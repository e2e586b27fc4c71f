"""Bodies of requests that are too large to be written at once: bytes, or a part of a file."""

from collections.abc import Callable
from typing import BinaryIO


class BytesBody:
    """A body in memory."""

    def __init__(self, data: bytes) -> None:
        self._rest = memoryview(data)

    @property
    def left(self) -> int:
        """The bytes that were not taken yet."""
        return len(self._rest)

    def take(self, size: int) -> memoryview:
        """Return the next piece."""
        piece, self._rest = self._rest[:size], self._rest[size:]
        return piece


class FileBody:
    """A part of a file, read while it is sent, so that its size does not matter."""

    def __init__(
        self, file: BinaryIO, start: int, size: int, on_taken: Callable[[int], None] | None = None
    ) -> None:
        """Call `on_taken` with the size of each piece."""
        self.size = self.left = size
        self._file = file
        self._at = start
        self._on_taken = on_taken

    def take(self, size: int) -> bytes:
        """Return the next piece; raises OSError if the file is shorter."""
        self._file.seek(self._at)
        piece = self._file.read(min(size, self.left))
        if not piece:
            raise OSError("the file became shorter while it was sent")
        self._at += len(piece)
        self.left -= len(piece)
        if self._on_taken is not None:
            self._on_taken(len(piece))
        return piece
