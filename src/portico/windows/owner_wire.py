"""A gateway that runs as an upstream: commands visit it by its control socket, and start nothing.

A visitor does not say whose account it has, and is served with the owner's.
"""

import asyncio

from msgspec import Struct

from portico.protocol.line_reader import LineReader, one_line
from portico.transport.pipes import PipeReader, PipeWriter
from portico.windows.connected_windows import LAST, LEAVE
from portico.windows.control import names
from portico.windows.joining import Attached, Incompatible, attach
from portico.wires.wire import MAX_MESSAGE, Failure, Outgoing, Receiver, Wire, made

_ATTACH_S = 5.0
_SEEK_S = 5.0
_PAUSE_S = 0.01


class OwnerAddress(Struct, frozen=True):
    """The process that has a gateway."""

    folder: str
    """Where the control sockets are."""
    socket: str
    version: str
    """Of this Portico: only the same ones talk."""
    name: str = "the gateway"

    def wire(self) -> "OwnerWire":
        """A way in that has not been gone."""
        return OwnerWire(self)

    def older(self) -> None:
        """There is only one way."""
        return


class OwnerWire(Wire):
    """One conversation with an owner: a message a line, as over stdio."""

    transport = "socket"

    def __init__(self, owner: OwnerAddress) -> None:
        self._owner = owner
        self._lines = LineReader(MAX_MESSAGE)
        self._room = asyncio.Event()
        self._room.set()
        self._writer: PipeWriter | None = None
        self._failure: Failure | None = None

    async def open(self, receiver: Receiver) -> None:
        """Be let in."""
        self._receiver = receiver
        found = await _let_in(self._owner)
        if not isinstance(found, Attached):
            why = "has ended just now" if found is None else f"cannot be asked: {found.why}"
            raise self._failed(why, "start").error()
        descriptor = found.socket.detach()
        self._writer = PipeWriter(descriptor)
        self._reader = PipeReader(descriptor, self._take, self._ended)
        self._writer.open(self, self._ended)
        self._reader.open()
        if found.rest:
            self._take(found.rest)

    async def send(self, message: Outgoing) -> None:
        """Write one line; waits while the owner does not read."""
        await self._room.wait()
        if self._failure is not None:
            raise self._failure.error()
        assert self._writer is not None
        self._writer.write((one_line(made(message.data)), b"\n"))

    async def close(self) -> None:
        """Leave; what was asked and not answered is cancelled there."""
        writer, self._writer = self._writer, None
        if writer is None:
            return
        self._reader.close()
        writer.drop()
        await writer.close()

    # How the owner reads.

    def pause(self) -> None:
        """The owner reads slowly."""
        self._room.clear()

    def resume(self) -> None:
        """The owner has caught up."""
        self._room.set()

    def _take(self, data: bytes) -> None:
        for line in self._lines.feed(data):
            if line is None:
                why = f"sent a message longer than {self._lines.limit} bytes"
                self._receiver.spoiled(self._lines.ends, why)
            elif line == LEAVE and self._writer is not None:
                self._writer.write((LAST, b"\n"))
            elif not line.startswith(b"#"):  # else it is for people
                self._receiver.received(line)

    def _ended(self) -> None:
        if self._failure is None and self._writer is not None:
            self._receiver.lost(self._failed("has ended", "closed"))
            self._room.set()  # whoever waits to write is told too

    def _failed(self, why: str, kind: str) -> Failure:
        self._failure = Failure(server=self._owner.name, why=why, kind=kind)
        return self._failure


async def _let_in(owner: OwnerAddress) -> Attached | Incompatible | None:
    """The way in, or why there is none; None if the owner is gone."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _SEEK_S
    while True:
        found = await attach(owner.folder, owner.socket, owner.version, _ATTACH_S)
        if found is not None or owner.socket not in names(owner.folder):
            return found
        if loop.time() > deadline:
            return Incompatible(f"it lets nobody in within {_SEEK_S:g} s")
        await asyncio.sleep(_PAUSE_S)  # too many others are at its door
