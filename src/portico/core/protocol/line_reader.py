"""Splits a stream of bytes into lines of limited length."""

from collections.abc import Sequence

LF, CR = b"\n\r"
"""As numbers: `in` is far faster on bytes for a number than for other bytes."""
_EDGE = 256


def one_line(message: bytes) -> bytes:
    """Return JSON on one line: in valid JSON a line break can only be whitespace between tokens."""
    if LF in message or CR in message:
        # Many parsers treat a lone carriage return as the end of a line, too.
        return message.replace(b"\r", b" ").replace(b"\n", b" ")
    return message


class LineReader:
    """Collects bytes into lines; a line over the limit is skipped and returned as None."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.pending = 0
        """The length of the line that has not ended yet."""
        self.ends = b""
        """The first and last bytes of the last skipped line, which may contain its id."""
        self.partial = bytearray()

    def feed(self, data: bytes) -> Sequence[bytes | None]:
        """Return the lines that these bytes complete."""
        lines = data.split(b"\n")
        tail = lines.pop()
        # The usual case: only whole lines, too short to exceed the limit.
        if lines and (self.pending or len(data) > self.limit):
            return self._joined(lines, tail)
        if tail:
            self._keep(tail)
        return lines

    def _joined(self, lines: list[bytes], tail: bytes) -> Sequence[bytes | None]:
        """Join the first line with its pending start; return None for each line over the limit."""
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
        self.ends = line if len(line) <= 2 * _EDGE else line[:_EDGE] + line[-_EDGE:]
        return None
