"""Cuts a stream of bytes into lines, bounded."""

from collections.abc import Sequence

LF, CR = b"\n\r"
"""As numbers: bytes are asked for a number far faster than for other bytes."""
_END = 256


def one_line(message: bytes) -> bytes:
    """The same JSON on one line: an end of line can only be a space between two parts of it."""
    if LF in message or CR in message:
        # Many readers take a lone return for the end of a line too.
        return message.replace(b"\r", b" ").replace(b"\n", b" ")
    return message


class LineReader:
    """Collects bytes into lines; one that is too long is passed over and reported as None."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.pending = 0
        """How long the line is that has not ended yet."""
        self.ends = b""
        """The first and last bytes of the latest line passed over: its id may be among them."""
        self.partial = bytearray()

    def feed(self, data: bytes) -> Sequence[bytes | None]:
        """The lines that these bytes complete."""
        lines = data.split(b"\n")
        tail = lines.pop()
        # Mostly they come whole, and none can be too long.
        if lines and (self.pending or len(data) > self.limit):
            return self._put_together(lines, tail)
        if tail:
            self._keep(tail)
        return lines

    def _put_together(self, lines: list[bytes], tail: bytes) -> Sequence[bytes | None]:
        """The same lines, the first with what came of it before; None for those too long."""
        first, *rest = lines
        self.partial += first
        bounded = [self._bounded(bytes(self.partial), self.pending + len(first))]
        bounded += [self._bounded(line, len(line)) for line in rest]
        self.partial.clear()
        self.pending = 0
        if tail:
            self._keep(tail)
        return bounded

    def _keep(self, data: bytes) -> None:
        self.pending += len(data)
        self.partial += data
        if self.pending > self.limit:
            self._bounded(bytes(self.partial), self.pending)
            self.partial = bytearray(self.ends)

    def _bounded(self, line: bytes, length: int) -> bytes | None:
        if length <= self.limit:
            return line
        self.ends = line if len(line) <= 2 * _END else line[:_END] + line[-_END:]
        return None
