"""One way from a client to whoever serves it now, and what is under way on it."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

from portico.protocol.codec import Envelope
from portico.protocol.lines import LineReader
from portico.transport.attach import Attached
from portico.transport.connection import Endpoint
from portico.transport.noted import Asked, message
from portico.transport.pipes import PipeReader, PipeWriter, Writer
from portico.transport.stdio import StdioServer

_MAX_ANSWER = 256 * 1024 * 1024
NO_ANSWER = Envelope()


class Shore(Protocol):
    """The client's side of a crossing."""

    def from_owner(self, crossing: "Crossing", line: bytes) -> None:
        """Take a line for the client."""
        ...

    def ended(self, crossing: "Crossing") -> None:
        """Nothing more comes that way."""
        ...

    def heed(self) -> None:
        """Read from the client if there is room for it, and only then."""
        ...


class Crossing(ABC):
    """What is under way between a client and one owner; how it gets there is for others to say."""

    parting = b""
    full = False
    """True while no more should be sent."""

    def __init__(self, turn: int) -> None:
        """`turn` is how many owners the client had before."""
        self.turn = turn
        self.asked: dict[bytes, Asked] = {}
        """Requests of the client, by the key of their ids."""
        self.questions: dict[bytes, bytes] = {}
        """Ids of the owner's requests that the client has not answered."""
        self.hushed: dict[bytes, asyncio.Future[Envelope]] = {}
        """Answers that are not for the client."""
        self.relisted: set[bytes] = set()
        """Listeners whose client has heard already that they are listeners."""
        self.is_over = False
        self.is_left = False
        """True if the owner has said that it leaves."""
        self._own = 0

    def open(self) -> None:
        """Carry lines from now on."""
        return  # one within this process always does

    @abstractmethod
    def send(self, line: bytes) -> None:
        """Send a line to the owner."""

    def unsent(self) -> list[bytes]:
        """The lines that were given to `send` and of which the owner has seen nothing."""
        return []

    @abstractmethod
    def slow(self) -> None:
        """The client reads slowly: take nothing from the owner."""

    @abstractmethod
    def quick(self) -> None:
        """The client has caught up."""

    async def close(self) -> None:
        """Leave nothing open."""
        return  # one within this process has nothing open

    def hush(self, key: bytes) -> "asyncio.Future[Envelope]":
        """Keep the answer to this id from the client; what comes back is the answer."""
        answer: asyncio.Future[Envelope] = asyncio.get_running_loop().create_future()
        self.hushed[key] = answer
        return answer

    def tell(self, method: str, params: bytes) -> "asyncio.Future[Envelope]":
        """Ask the owner in our own name; an empty answer if it ends before it answers."""
        self._own += 1
        id = f'"portico-again-{self._own}"'.encode()
        answer = self.hush(id)
        self.send(message(method, params, id))
        return answer

    def over(self) -> None:
        """Nobody waits for hushed answers any more."""
        self.is_over = True
        hushed, self.hushed = self.hushed, {}
        for answer in hushed.values():
            if not answer.done():
                answer.set_result(NO_ANSWER)


class SocketCrossing(Crossing):
    """To the owner in another process."""

    def __init__(self, attached: Attached, shore: Shore, turn: int) -> None:
        super().__init__(turn)
        self.parting = attached.parting
        self._shore = shore
        self._lines = LineReader(_MAX_ANSWER)
        fd = attached.socket.detach()
        self._writer = PipeWriter(fd)
        self._reader = PipeReader(fd, self._received, self._ended)
        self._rest = attached.rest
        self._offered = 0
        self._in_hand: list[tuple[int, bytes]] = []

    def open(self) -> None:
        # Who cannot write may still have answers to read: the end is where reading ends.
        self._writer.open(self, lambda: None)
        self._reader.open()
        if self._rest:
            self._received(self._rest)

    def send(self, line: bytes) -> None:
        begin = self._offered
        self._offered += len(line) + 1
        self._writer.write((line, b"\n"))
        if self._writer.unwritten:
            self._in_hand.append((begin, line))

    def unsent(self) -> list[bytes]:
        written = self._offered - self._writer.unwritten
        return [line for begin, line in self._in_hand if begin >= written]

    def slow(self) -> None:
        self._reader.pause()

    def quick(self) -> None:
        self._reader.resume()

    async def close(self) -> None:
        self._reader.close()
        if self.is_over:
            self._writer.drop()
        await self._writer.close()

    # How the owner reads.

    def pause(self) -> None:
        """The owner reads slowly."""
        self.full = True
        self._shore.heed()

    def resume(self) -> None:
        """The owner has caught up."""
        self.full = False
        self._in_hand.clear()
        self._shore.heed()

    def _received(self, data: bytes) -> None:
        for line in self._lines.feed(data):
            if line is None:
                self._reader.close()  # an answer nobody could hold: its asker must not wait
                self._ended()
                return
            self._shore.from_owner(self, line)

    def _ended(self) -> None:
        if not self.is_over:
            self._shore.ended(self)


class HouseCrossing(Crossing):
    """To ourselves: this process has become the owner."""

    def __init__(
        self, endpoint: Endpoint, shore: Shore, writer: Writer, turn: int, *, max_line: int
    ) -> None:
        super().__init__(turn)
        self._shore = shore
        self._writer = writer
        self._is_direct = False
        self.server = StdioServer(endpoint, self._write, max_line=max_line)
        self.server.connection.asker = f"portico.{turn}"

    def send(self, line: bytes) -> None:
        self.server.take_line(line)

    def slow(self) -> None:
        self.server.pause()

    def quick(self) -> None:
        self.server.resume()

    def direct(self) -> Callable[[bytes], None]:
        """Write to the client without another look from now on; what takes its bytes."""
        self._is_direct = True
        return self.server.received

    def _write(self, parts: tuple[bytes, ...]) -> None:
        if self._is_direct:
            self._writer.write(parts)
        else:
            self._shore.from_owner(self, b"".join(parts).removesuffix(b"\n"))
