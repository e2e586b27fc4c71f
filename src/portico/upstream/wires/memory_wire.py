"""A wire to a server in the same process: it opens no socket and starts no process."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from portico.upstream.wires.wire import Outgoing, Receiver, Wire, to_bytes

Send = Callable[[bytes], object]
"""Takes one message of the server."""


class ClientEnd(Protocol):
    """The server's side of one client, such as a `Connection`."""

    def receive(self, message: bytes) -> None:
        """Handle one message of the client."""
        ...

    def disconnected(self) -> None:
        """Cancel all calls in flight: the client disconnected."""
        ...


class MemoryAddress(Struct, frozen=True):
    """A server in this process: `MemoryAddress(lambda send: Connection(endpoint, send))`."""

    connect: Callable[[Send], ClientEnd]
    name: str = "local"

    def wire(self) -> "MemoryWire":
        """Return a new wire."""
        return MemoryWire(self.connect)

    def older(self) -> None:
        """Return None: there is no older transport."""
        return


class MemoryWire(Wire):
    """Passes messages on; a message of the server arrives on the next turn of the event loop."""

    transport = "memory"
    _receiver: Receiver

    def __init__(self, connect: Callable[[Send], ClientEnd]) -> None:
        self._connect = connect
        self._end: ClientEnd | None = None

    async def open(self, receiver: Receiver) -> None:
        """Connect to the server."""
        self._receiver = receiver
        self._end = self._connect(self._received)

    async def send(self, message: Outgoing) -> None:
        """Pass one message on."""
        self.deliver(message)

    def deliver(self, message: Outgoing) -> None:
        """Pass one message on; its handler runs up to its first wait."""
        assert self._end is not None
        self._end.receive(to_bytes(message.data))

    async def close(self) -> None:
        """Disconnect from the server."""
        if self._end is not None:
            self._end.disconnected()

    def _received(self, message: bytes) -> None:
        asyncio.get_running_loop().call_soon(self._receiver.received, message)
