"""Cuts a stream of bytes into lines, bounded."""

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
        self._parts: list[bytes] = []

    def feed(self, data: bytes) -> list[bytes | None]:
        """The lines that these bytes complete."""
        end = data.find(b"\n")
        if end < 0:
            self._keep(data)
            return []
        if end == len(data) - 1 <= self.limit and not self.pending:
            return [data[:end]]  # one whole line, as clients mostly send it
        first, *rest = data.split(b"\n")
        tail = rest.pop()
        self._parts.append(first)
        lines = [self._bounded(b"".join(self._parts), self.pending + len(first))]
        lines += [self._bounded(line, len(line)) for line in rest]
        self._parts.clear()
        self.pending = 0
        self._keep(tail)
        return lines

    def _keep(self, data: bytes) -> None:
        if not data:
            return
        self.pending += len(data)
        self._parts.append(data)
        if self.pending > self.limit:
            self._bounded(b"".join(self._parts), self.pending)
            self._parts = [self.ends]

    def _bounded(self, line: bytes, length: int) -> bytes | None:
        if length <= self.limit:
            return line
        self.ends = line if len(line) <= 2 * _END else line[:_END] + line[-_END:]
        return None
