"""Server-sent events as bytes: the data of an event is a message, passed on undecoded."""

from msgspec import Struct


class ServerSentEvent(Struct, frozen=True):
    """One event. The id is the last one on the stream so far."""

    data: bytes
    kind: str = "message"
    id: str = ""


class TooLong(Exception):
    """An event or line is longer than the limit; `remains` may contain an id."""

    def __init__(self, limit: int, remains: bytes) -> None:
        super().__init__(f"sent an event longer than {limit} bytes")
        self.remains = remains


class EventReader:
    """Splits a stream of bytes into events (HTML standard, "server-sent events"), up to a limit."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.last_id = ""
        """The id of the last complete event."""
        self.count = 0
        """The number of events so far."""
        self.retry_ms: int | None = None
        self._id = ""
        self._tail = bytearray()
        self._data: list[bytes] = []
        self._data_size = 0
        self._kind = ""
        self._after_return = False

    def begin(self) -> None:
        """Resume the stream on another connection; a partial event of the last one is dropped."""
        self._id = self.last_id
        self._tail.clear()
        self._data.clear()
        self._data_size = 0
        self._kind = ""
        self._after_return = False

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """Return the events that these bytes complete; raises TooLong."""
        if self._after_return and chunk[:1] == b"\n":
            chunk = chunk[1:]  # the second half of a split CRLF
        if not chunk:
            return []
        self._after_return = chunk[-1:] == b"\r"
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, tail = chunk.split(b"\n")
        if lines:
            self._tail += lines[0]
            lines[0] = bytes(self._tail)
            self._tail.clear()
        events = [event for line in lines if (event := self._line(line)) is not None]
        self._tail += tail
        if self._data_size + len(self._tail) > self.limit:
            raise TooLong(self.limit, b"".join((*self._data, self._tail))[:512])
        return events

    def _line(self, line: bytes) -> ServerSentEvent | None:
        if not line:
            return self._dispatch()
        if line.startswith(b"data: "):  # the usual case; it may be long, so copy it once
            name, value = b"data", line[6:]
        else:
            name, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
        if name == b"data":
            self._data_size += len(value) + bool(self._data)  # with the newline that joins it
            self._data.append(value)
        elif name == b"event":
            self._kind = value.decode(errors="replace")
        elif name == b"id" and value.isascii() and (id := value.decode()).isprintable():
            self._id = id  # any other cannot be sent in a header
        elif name == b"retry" and value.isdigit() and len(value) < 10:
            self.retry_ms = int(value)
        return None

    def _dispatch(self) -> ServerSentEvent | None:
        self.last_id = self._id
        data, kind = b"\n".join(self._data), self._kind
        self._data = []
        self._data_size = 0
        self._kind = ""
        if not data:
            return None
        self.count += 1
        return ServerSentEvent(data, kind or "message", self.last_id)
