"""A server in this very process, behind a wire that opens no socket."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from portico.protocol.line_reader import one_line
from portico.wires.wire import Outgoing, Receiver, Wire, to_bytes

Write = Callable[[tuple[bytes, ...]], None]


class Served(Protocol):
    """The server's end: an endpoint behind the stdio transport."""

    def received(self, data: bytes) -> None:
        """Take in a line."""
        ...

    def disconnected(self) -> None:
        """The client has left."""
        ...


class Local(Struct, frozen=True):
    """A server in this process: `Local(lambda write: StdioServer(endpoint, write))`."""

    serve: Callable[[Write], Served]
    name: str = "local"

    def wire(self) -> "InMemory":
        """A connection to it."""
        return InMemory(self.serve)

    def older(self) -> None:
        """There is only one way."""
        return


class InMemory(Wire):
    """A pipe without a file: each message arrives on the next turn of the event loop."""

    transport = "memory"
    _receiver: Receiver

    def __init__(self, serve: Callable[[Write], Served]) -> None:
        self._serve = serve
        self._served: Served | None = None

    async def open(self, receiver: Receiver) -> None:
        """Have the other end serve us."""
        self._receiver = receiver
        self._served = self._serve(self._write)

    async def send(self, message: Outgoing) -> None:
        """Hand over one line."""
        assert self._served is not None
        self._served.received(one_line(to_bytes(message.data)) + b"\n")

    async def close(self) -> None:
        """Leave."""
        if self._served is not None:
            self._served.disconnected()

    def _write(self, parts: tuple[bytes, ...]) -> None:
        for line in b"".join(parts).splitlines():
            asyncio.get_running_loop().call_soon(self._receiver.received, line)
