"""A wire to a running gateway: commands connect to its control socket and start no servers.

A command sends no account, so the owner's account applies.
"""

import asyncio

from msgspec import Struct

from portico.core.config.paths import working_folder
from portico.core.protocol.line_reader import LineReader, one_line
from portico.edge.transport.pipes import PipeReader, PipeWriter
from portico.edge.windows.connected_windows import DRAIN, END
from portico.edge.windows.joining import Attached, attach_when_free
from portico.edge.windows.preferences import FOLDER
from portico.upstream.wires.wire import MAX_MESSAGE, Failure, Outgoing, Receiver, Wire, to_bytes


class OwnerAddress(Struct, frozen=True):
    """The control socket of the process that owns a gateway."""

    folder: str
    """Where the control sockets are."""
    socket: str
    version: str
    """The version of this Portico; an owner of another version is incompatible."""
    name: str = "the gateway"

    def wire(self) -> "OwnerWire":
        """Return a new wire, not yet open."""
        return OwnerWire(self)

    def older(self) -> None:
        """Return None: no older transport exists."""
        return


class OwnerWire(Wire):
    """One connection to an owner: one message per line, as over stdio."""

    transport = "socket"

    def __init__(self, owner: OwnerAddress) -> None:
        self._owner = owner
        self._lines = LineReader(MAX_MESSAGE)
        self._writable = asyncio.Event()
        self._writable.set()
        self._writer: PipeWriter | None = None
        self._failure: Failure | None = None

    async def open(self, receiver: Receiver) -> None:
        """Attach to the owner."""
        self._receiver = receiver
        owner = self._owner
        here = {FOLDER: working_folder()}
        found = await attach_when_free(owner.folder, owner.socket, owner.version, preferences=here)
        if not isinstance(found, Attached):
            why = "has just ended" if found is None else f"refused the connection: {found.why}"
            raise self._failed(why, "start").error()
        descriptor = found.socket.detach()
        self._writer = PipeWriter(descriptor)
        self._reader = PipeReader(descriptor, self._received, self._ended)
        self._writer.open(self, self._ended)
        self._reader.open()
        if found.rest:
            self._received(found.rest)

    async def send(self, message: Outgoing) -> None:
        """Write one line; wait while the owner does not read."""
        await self._writable.wait()
        if self._failure is not None:
            raise self._failure.error()
        assert self._writer is not None
        self._writer.write((one_line(to_bytes(message.data)), b"\n"))

    async def close(self) -> None:
        """Disconnect; the owner cancels the pending requests."""
        writer, self._writer = self._writer, None
        if writer is None:
            return
        self._reader.close()
        writer.drop()
        await writer.close()

    # Backpressure from the owner.

    def pause(self) -> None:
        """The owner reads slowly."""
        self._writable.clear()

    def resume(self) -> None:
        """The owner has caught up."""
        self._writable.set()

    def _received(self, data: bytes) -> None:
        for line in self._lines.feed(data):
            if line is None:
                why = f"sent a message longer than {self._lines.limit} bytes"
                self._receiver.malformed(self._lines.ends, why)
            elif line == DRAIN and self._writer is not None:
                self._writer.write((END, b"\n"))
            elif not line.startswith(b"#"):  # a report, for people
                self._receiver.received(line)

    def _ended(self) -> None:
        if self._failure is None and self._writer is not None:
            self._receiver.lost(self._failed("has ended", "closed"))
            self._writable.set()  # pending writes fail too

    def _failed(self, why: str, kind: str) -> Failure:
        self._failure = Failure(server=self._owner.name, why=why, kind=kind)
        return self._failure
