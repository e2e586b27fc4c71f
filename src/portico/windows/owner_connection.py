"""One connection from a window to an owner, and what is under way on it."""

import asyncio
from typing import Protocol

from portico.protocol.codec import Envelope, request_message
from portico.protocol.line_reader import LineReader
from portico.transport.pipes import PipeReader, PipeWriter
from portico.windows.connected_windows import AGAIN, LAST
from portico.windows.joining import Attached
from portico.windows.session_state import Asked

_MAX_ANSWER = 256 * 1024 * 1024
NO_ANSWER = Envelope()


class ClientSide(Protocol):
    """The client's side of a crossing."""

    def from_owner(self, line: bytes) -> None:
        """Take a line for the client."""
        ...

    def ended(self) -> None:
        """Nothing more comes that way."""
        ...

    def update_backpressure(self) -> None:
        """Read from the client if there is room for it, and only then."""
        ...


class OwnerConnection:
    """To an owner, and what the client waits for there."""

    def __init__(self, attached: Attached, shore: ClientSide, turn: int) -> None:
        """`turn` is how many owners the client had before."""
        self.turn = turn
        self.full = False
        """True while no more should be sent."""
        self.asked: dict[bytes, Asked] = {}
        """Requests of the client, by the key of their ids."""
        self.questions: dict[bytes, bytes] = {}
        """Ids of the owner's requests that the client has not answered."""
        self.hushed: dict[bytes, asyncio.Future[Envelope]] = {}
        """Answers that are not for the client."""
        self.relisted: set[bytes] = set()
        """Listeners whose client has heard already that they are listeners."""
        self.is_over = False
        self.has_answered = False
        """True once the client has had an answer from there."""
        self.leaves = False
        """True once the owner takes no more requests."""
        self._own = 0
        self._shore = shore
        self._lines = LineReader(_MAX_ANSWER)
        fd = attached.socket.detach()
        self._writer = PipeWriter(fd)
        self._reader = PipeReader(fd, self._received, self._ended)
        self._rest = attached.rest
        self._offered = 0
        self._in_hand: list[tuple[int, bytes]] = []

    def open(self) -> None:
        """Carry lines from now on."""
        # Who cannot write may still have answers to read: the end is where reading ends.
        self._writer.open(self, lambda: None)
        self._reader.open()
        if self._rest:
            self._received(self._rest)

    def send(self, line: bytes) -> None:
        """Send a line to the owner."""
        begin = self._offered
        self._offered += len(line) + 1
        self._writer.write((line, b"\n"))
        if self._writer.unwritten:
            self._in_hand.append((begin, line))

    def finish(self) -> None:
        """Say that no more requests come."""
        self._writer.write((LAST, b"\n"))

    def ask_again(self) -> None:
        """Have all servers asked again for what they offer."""
        self._writer.write((AGAIN, b"\n"))

    def unsent(self) -> list[bytes]:
        """The lines that were given to `send` and of which the owner has seen nothing."""
        written = self._offered - self._writer.unwritten
        return [line for begin, line in self._in_hand if begin >= written]

    def slow(self) -> None:
        """The client reads slowly: take nothing from the owner."""
        self._reader.pause()

    def quick(self) -> None:
        """The client has caught up."""
        self._reader.resume()

    async def close(self) -> None:
        """Leave nothing open."""
        self._reader.close()
        if self.is_over:
            self._writer.drop()
        await self._writer.close()

    def tell(self, method: str, params: bytes) -> "asyncio.Future[Envelope]":
        """Ask the owner in our own name; an empty answer if it ends before it answers."""
        self._own += 1
        id = f'"portico-again-{self._own}"'.encode()
        answer: asyncio.Future[Envelope] = asyncio.get_running_loop().create_future()
        self.hushed[id] = answer
        self.send(request_message(method, params, id))
        return answer

    def over(self) -> None:
        """Nobody waits for hushed answers any more."""
        self.is_over = True
        hushed, self.hushed = self.hushed, {}
        for answer in hushed.values():
            if not answer.done():
                answer.set_result(NO_ANSWER)

    # How the owner reads.

    def pause(self) -> None:
        """The owner reads slowly."""
        self.full = True
        self._shore.update_backpressure()

    def resume(self) -> None:
        """The owner has caught up."""
        self.full = False
        self._in_hand.clear()
        self._shore.update_backpressure()

    def _received(self, data: bytes) -> None:
        for line in self._lines.feed(data):
            if line is None:
                self._reader.close()  # an answer nobody could hold: its asker must not wait
                self._ended()
                return
            self._shore.from_owner(line)

    def _ended(self) -> None:
        if not self.is_over:
            self._shore.ended()
