"""Carries a client's lines to the owner of the gateway, and on to the next when that one ends.

Lines pass as they are. What the next owner must be told is noted on the way, and so is what the
client still waits for: it gets exactly one answer, whatever happens to owners.
"""

import asyncio
import contextlib
from collections import deque

import msgspec
from msgspec import Raw

from portico.model.errors import INTERNAL_ERROR
from portico.model.message import Response
from portico.model.methods import INITIALIZED, LISTEN
from portico.protocol.codec import Envelope, cancelled_id, error_response, notification
from portico.protocol.line_reader import LineReader
from portico.state.background import Background
from portico.state.report import report
from portico.transport.client_connection import duplicate_id_error, id_key
from portico.transport.pipes import PipeReader, Writer
from portico.transport.stdio import line_too_long
from portico.windows.connected_windows import LEAVE, SAY
from portico.windows.owner_connection import OwnerConnection
from portico.windows.session_state import (
    ACKNOWLEDGED,
    CANCELLED,
    INITIALIZE,
    SET_LEVEL,
    SUBSCRIBE,
    Asked,
    SessionState,
    acknowledgement,
    kept,
    read,
    salvaged,
)

_CLOSED = (
    "the gateway ended while this was under way, and another takes over; it may or may not have "
    "been done, so look before you ask again"
)
_OURS = b"#"
"""How a line begins that is between us and the owner."""
_MAX_WAITING = 1000
"""Lines that are read from the client for the next owner while this one finishes."""


class Bridge:
    """One client, and its way to the owner."""

    def __init__(self, writer: Writer, stop: asyncio.Event, *, max_line: int) -> None:
        """The client is read from stdin; `stop` is set when it leaves."""
        self._writer = writer
        self._stop = stop
        self._lines = LineReader(max_line)
        self._reader = PipeReader(0, self._received, stop.set)
        self._state = SessionState()
        self._connection: OwnerConnection | None = None
        """To the owner of now; being told what it must know until it is settled."""
        self._is_settled = False
        self._again: list[Asked] = []
        self._waiting: deque[bytes] = deque()
        self._is_slow = False
        self._closing = Background()
        self.adrift = asyncio.Event()
        """Set while there is no owner."""
        self.is_lost = False
        """True if the client reads no more."""

    def open(self) -> None:
        """Take the client's side."""
        self._writer.open(self, self._lost)
        self._reader.open()
        self._reader.pause()

    async def settle(self, connection: OwnerConnection) -> None:
        """Go this way from now on: tell the owner what the last one knew, then what waits."""
        self._connection = connection
        self.adrift.clear()
        connection.open()
        if self._is_slow:
            connection.slow()
        await self._introduce(connection)
        if connection.is_over or connection.leaves:
            return
        self._is_settled = True
        self._catch_up(connection)
        self.update_backpressure()

    @property
    def is_deaf(self) -> bool:
        """True if what the client says cannot be read."""
        return self._reader.failed

    @property
    def is_idle(self) -> bool:
        """True if nobody waits for anything."""
        return not self._again and not self._waiting

    def awaits(self, connection: OwnerConnection) -> bool:
        """True if the client waits for something that way, and reads what comes."""
        return bool(connection.asked) and not self._is_slow

    def ask_again(self) -> None:
        """Have all servers asked again for what they offer."""
        if self._connection is not None:
            self._connection.ask_again()

    async def part(self, within_s: float) -> None:
        """The client leaves: have what it asked for finished, within the limit."""
        if self.is_lost or self._connection is None:
            return
        self._connection.finish()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self.adrift.wait()

    async def close(self) -> None:
        """Leave nothing open, and nobody without an answer."""
        self._reader.close()
        if self._connection is not None:
            self.ended()
        for asked in self._again:
            self._reply(_closed(asked.id))
        for envelope in (envelope for line in self._waiting for envelope in read(line)):
            if envelope.id and envelope.method:
                self._reply(_closed(bytes(envelope.id)))
        await self._closing.wait()
        await self._writer.close()

    # How the client reads.

    def pause(self) -> None:
        """The client reads slowly."""
        self._is_slow = True
        if self._connection is not None:
            self._connection.slow()

    def resume(self) -> None:
        """The client has caught up."""
        self._is_slow = False
        if self._connection is not None:
            self._connection.quick()

    # What the owner says.

    def update_backpressure(self) -> None:
        """Read from the client if there is room for it, and only then."""
        is_full = self._connection is None or self._connection.full
        if is_full or not self._is_settled or len(self._waiting) > _MAX_WAITING:
            self._reader.pause()
        else:
            self._reader.resume()

    def from_owner(self, line: bytes) -> None:
        """Take a line for the client, or for the person at it."""
        connection = self._connection
        assert connection is not None
        if line.startswith(_OURS):
            if line.startswith(SAY):
                report(msgspec.json.decode(line[len(SAY) :], type=str))
            elif line == LEAVE:
                connection.leaves = True
                connection.finish()
            return
        passes = [self._passes(connection, envelope) for envelope in read(line)]
        if all(passes):
            self._say(line)

    def ended(self) -> None:
        """Nothing more comes that way: whoever waits for it is told, or waits for the next."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        self._is_settled = False
        self._take_back(connection)
        for asked in connection.asked.values():
            if asked.line:
                self._again.append(asked)
            else:
                self._reply(_closed(asked.id))
        for id in connection.questions.values():
            self._say(notification(CANCELLED, {"requestId": Raw(id)}))
        connection.over()
        self._closing.start(connection.close())
        self.adrift.set()
        self.update_backpressure()

    def _take_back(self, connection: OwnerConnection) -> None:
        """Keep for the next owner what this one has seen nothing of."""
        unsent = []
        for line in connection.unsent():
            keys = [id_key(bytes(envelope.id)) for envelope in read(line)]
            if not connection.hushed.keys() & keys:
                unsent.append(line)
                for key in keys:
                    connection.asked.pop(key, None)
        self._waiting.extendleft(reversed(unsent))

    # The next owner.

    async def _introduce(self, connection: OwnerConnection) -> None:
        state = self._state
        if not state.handshake:
            return
        await connection.tell(INITIALIZE, state.handshake)
        if state.initialized:
            connection.send(state.initialized)
        if state.level:
            await connection.tell(SET_LEVEL, state.level)
        for params in tuple(state.subscriptions.values()):
            connection.tell(SUBSCRIBE, params)

    def _catch_up(self, connection: OwnerConnection) -> None:
        again, self._again = self._again, []
        for asked in again:
            key = id_key(asked.id)
            connection.asked[key] = asked
            if asked.acknowledged:
                connection.relisted.add(key)
            connection.send(asked.line)
            if asked.method == INITIALIZE and self._state.initialized:
                connection.send(self._state.initialized)
        for change in self._state.changes() if connection.turn else ():
            self._say(change)
        waiting, self._waiting = self._waiting, deque()
        for line in waiting:
            self._from_client(line)

    # From the client.

    def _received(self, data: bytes) -> None:
        for line in self._lines.feed(data):
            if line is None:
                self._reply(line_too_long(self._lines, self._state.version))
            elif line and not line.isspace():
                self._from_client(line)

    def _from_client(self, line: bytes) -> None:
        if line.startswith(_OURS):
            line = b" " + line  # which is no message either, and none of ours
        connection = self._connection
        if connection is None or not self._is_settled:
            self._waiting.append(line)
            return
        messages = read(line)
        if connection.leaves and not all(_is_under_way(connection, one) for one in messages):
            self._waiting.append(line)
            self.update_backpressure()
            return
        if not messages:
            asked = salvaged(line)
            if asked is not None:
                connection.asked[id_key(asked.id)] = asked
        is_batch = len(messages) > 1
        for envelope in messages:
            if not self._note(connection, envelope, line, is_batch):
                return
        connection.send(line)

    def _note(
        self, connection: OwnerConnection, envelope: Envelope, line: bytes, is_batch: bool
    ) -> bool:
        """Note what a client says; False if it is not for the owner."""
        id, method = bytes(envelope.id), envelope.method
        if id and method:
            key = id_key(id)
            if not is_batch and key in connection.asked:
                # The two answers could not be told apart.
                self._reply(duplicate_id_error(id))
                return False
            connection.asked[key] = kept(envelope, b"" if is_batch else line)
        elif not method:
            # Who asked is gone, if it is not this one.
            return connection.questions.pop(id_key(id), None) is not None or is_batch
        elif method == CANCELLED:
            connection.asked.pop(id_key(cancelled_id(envelope.params)), None)
        elif method == INITIALIZED:
            self._state.initialized = line
        return True

    # To the client.

    def _passes(self, connection: OwnerConnection, envelope: Envelope) -> bool:
        """Note what an owner says; False if it is not for the client."""
        id = bytes(envelope.id)
        if envelope.method:
            if id:
                connection.questions[id_key(id)] = id
            elif envelope.method == CANCELLED:
                connection.questions.pop(id_key(cancelled_id(envelope.params)), None)
            elif envelope.method == ACKNOWLEDGED:
                return self._acknowledged(connection, envelope)
            return True
        key = id_key(id)
        hushed = connection.hushed.pop(key, None)
        if hushed is not None:
            if not hushed.done():
                hushed.set_result(envelope)
            return False
        asked = connection.asked.pop(key, None)
        if asked is not None and asked.method == LISTEN and connection.leaves:
            connection.asked[key] = asked  # it goes on at the next owner
            return False
        if asked is not None:
            connection.has_answered = True
            self._state.answered(asked, envelope)
        return True

    def _acknowledged(self, connection: OwnerConnection, envelope: Envelope) -> bool:
        """A listener hears once that it is one; later, that it may have missed something."""
        id, changes = acknowledgement(envelope)
        key = id_key(id)
        if key in connection.relisted:
            connection.relisted.discard(key)
            for change in changes:
                self._say(change)
            return False
        if key in connection.asked:
            connection.asked[key].acknowledged = True
        return True

    def _lost(self) -> None:
        self.is_lost = True
        self._stop.set()

    def _reply(self, response: Response) -> None:
        self._writer.write((*response.parts, b"\n"))

    def _say(self, line: bytes) -> None:
        self._writer.write((line, b"\n"))


def _is_under_way(connection: OwnerConnection, envelope: Envelope) -> bool:
    """True of an answer, and of the cancellation of a request that was sent this way."""
    if envelope.method == CANCELLED:
        return id_key(cancelled_id(envelope.params)) in connection.asked
    return not envelope.method


def _closed(id: bytes) -> Response:
    return error_response(id, INTERNAL_ERROR, _CLOSED, {"kind": "closed"})
