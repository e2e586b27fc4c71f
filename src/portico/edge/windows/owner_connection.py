"""One connection from a window to an owner, and the requests pending on it."""

import asyncio
from typing import Protocol

from portico.core.protocol.codec import Envelope, request_message
from portico.core.protocol.line_reader import LineReader
from portico.edge.transport.pipes import PipeReader, PipeWriter
from portico.edge.windows.connected_windows import END, REFRESH
from portico.edge.windows.joining import Attached
from portico.edge.windows.session_state import TrackedRequest

_MAX_ANSWER = 256 * 1024 * 1024
NO_ANSWER = Envelope()


class ClientSide(Protocol):
    """The client's side of a bridge."""

    def from_owner(self, line: bytes) -> None:
        """Handle a line of the owner."""
        ...

    def disconnect(self) -> None:
        """Handle the end of the connection."""
        ...

    def update_backpressure(self) -> None:
        """Read from the client only while the owner has room."""
        ...


class OwnerConnection:
    """A connection to an owner, with the client's pending requests."""

    def __init__(self, attached: Attached, client: ClientSide, generation: int) -> None:
        """`generation` is the number of earlier owners of this client."""
        self.generation = generation
        self.is_full = False
        """True while no more should be sent."""
        self.pending: dict[bytes, TrackedRequest] = {}
        """The client's requests, by the key of their id."""
        self.questions: dict[bytes, bytes] = {}
        """The ids of the owner's requests that the client has not answered."""
        self.internal_calls: dict[bytes, asyncio.Future[Envelope]] = {}
        """The bridge's own requests, whose responses are not for the client."""
        self.resumed_listeners: set[bytes] = set()
        """Listeners that an earlier owner has acknowledged."""
        self.acknowledged: list[tuple[bytes, list[str]]] = []
        """The listeners that this owner has acknowledged before its lists were compared: the id of
        each, and its kinds of lists."""
        self.changed_lists: set[str] | None = None
        """The kinds of lists that differ from those that the client has read; None until they are
        compared."""
        self.is_closed = False
        self.has_answered = False
        """True once the client has received a response from this owner."""
        self.is_draining = False
        """True once the owner accepts no more requests."""
        self._call_count = 0
        self._client = client
        self._lines = LineReader(_MAX_ANSWER)
        fd = attached.socket.detach()
        self._writer = PipeWriter(fd)
        self._reader = PipeReader(fd, self._received, self._ended)
        self._rest = attached.rest
        self._sent_size = 0
        self._buffered: list[tuple[int, bytes]] = []

    def open(self) -> None:
        """Start reading and writing."""
        # Responses may still be readable when writing fails: only the end of reading counts.
        self._writer.open(self, lambda: None)
        self._reader.open()
        if self._rest:
            self._received(self._rest)

    def send(self, line: bytes) -> None:
        """Send a line to the owner."""
        begin = self._sent_size
        self._sent_size += len(line) + 1
        self._writer.write((line, b"\n"))
        if self._writer.unwritten:
            self._buffered.append((begin, line))

    def finish(self) -> None:
        """Announce that no more requests follow."""
        self._writer.write((END, b"\n"))

    def start_refresh(self) -> None:
        """Refresh the catalogs of all servers."""
        self._writer.write((REFRESH, b"\n"))

    def unsent(self) -> list[bytes]:
        """Return the lines passed to `send` of which no byte was written."""
        written = self._sent_size - self._writer.unwritten
        return [line for begin, line in self._buffered if begin >= written]

    def pause_reading(self) -> None:
        """Stop reading from the owner, because the client reads slowly."""
        self._reader.pause()

    def resume_reading(self) -> None:
        """Read again, because the client has caught up."""
        self._reader.resume()

    async def close(self) -> None:
        """Close the socket."""
        self._reader.close()
        if self.is_closed:
            self._writer.drop()
        await self._writer.close()

    def call(self, method: str, params: bytes) -> "asyncio.Future[Envelope]":
        """Send a request of the bridge's own; its result is `NO_ANSWER` if the owner ends."""
        self._call_count += 1
        id = f'"portico-again-{self._call_count}"'.encode()
        answer: asyncio.Future[Envelope] = asyncio.get_running_loop().create_future()
        self.internal_calls[id] = answer
        self.send(request_message(method, params, id))
        return answer

    def mark_closed(self) -> None:
        """Mark the connection closed, and end the bridge's own requests."""
        self.is_closed = True
        calls, self.internal_calls = self.internal_calls, {}
        for answer in calls.values():
            if not answer.done():
                answer.set_result(NO_ANSWER)

    # Backpressure from the owner.

    def pause(self) -> None:
        """The owner reads slowly."""
        self.is_full = True
        self._client.update_backpressure()

    def resume(self) -> None:
        """The owner has caught up."""
        self.is_full = False
        self._buffered.clear()
        self._client.update_backpressure()

    def _received(self, data: bytes) -> None:
        for line in self._lines.feed(data):
            if line is None:
                self._reader.close()  # the response is too large, and its request must not hang
                self._ended()
                return
            self._client.from_owner(line)

    def _ended(self) -> None:
        if not self.is_closed:
            self._client.disconnect()
