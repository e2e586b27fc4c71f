"""Server-sent events, as bytes: an event's data is a message we pass on, not text we read."""

from msgspec import Struct


class ServerSentEvent(Struct, frozen=True):
    """One event. The id is the last one seen on the stream so far."""

    data: bytes
    kind: str = "message"
    id: str = ""


class TooLong(Exception):
    """An event or line longer than the limit; what remains of it may show an id."""

    def __init__(self, limit: int, remains: bytes) -> None:
        super().__init__(f"sent an event longer than {limit} bytes")
        self.remains = remains


class EventReader:
    """Cuts a stream of bytes into events (HTML standard, "server-sent events"), bounded."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.last_id = ""
        """The id of the last event that came whole."""
        self.count = 0
        """How many events came."""
        self.retry_ms: int | None = None
        self._id = ""
        self._tail = bytearray()
        self._data: list[bytes] = []
        self._held = 0
        self._kind = ""
        self._after_return = False

    def begin(self) -> None:
        """Another connection goes on with the stream: what the one before cut off is void."""
        self._id = self.last_id
        self._tail.clear()
        self._data.clear()
        self._held = 0
        self._kind = ""
        self._after_return = False

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """The events that these bytes complete; raises TooLong."""
        if self._after_return and chunk[:1] == b"\n":
            chunk = chunk[1:]  # the second half of a CRLF that was cut in two
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
        if self._held + len(self._tail) > self.limit:
            raise TooLong(self.limit, b"".join((*self._data, self._tail))[:512])
        return events

    def _line(self, line: bytes) -> ServerSentEvent | None:
        if not line:
            return self._dispatch()
        if line.startswith(b"data: "):  # nearly always, and then it may be long: one copy is enough
            name, value = b"data", line[6:]
        else:
            name, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
        if name == b"data":
            self._held += len(value) + bool(self._data)  # with what joins it to the one before
            self._data.append(value)
        elif name == b"event":
            self._kind = value.decode(errors="replace")
        elif name == b"id" and value.isascii() and (id := value.decode()).isprintable():
            self._id = id  # any other could not be named in a header
        elif name == b"retry" and value.isdigit() and len(value) < 10:
            self.retry_ms = int(value)
        return None

    def _dispatch(self) -> ServerSentEvent | None:
        self.last_id = self._id
        data, kind = b"\n".join(self._data), self._kind
        self._data = []
        self._held = 0
        self._kind = ""
        if not data:
            return None
        self.count += 1
        return ServerSentEvent(data, kind or "message", self.last_id)
