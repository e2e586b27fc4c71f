"""Carries a client's lines to whoever owns the gateway now, and across when that one ends.

Lines pass as they are. What the next owner must be told is noted on the way, and so is what the
client still waits for: it gets exactly one answer, whatever happens to owners.
"""

import asyncio
import contextlib
from collections import deque

from msgspec import Raw

from portico.model.errors import INTERNAL_ERROR
from portico.model.message import Response
from portico.protocol.codec import Envelope, error_response, notification
from portico.protocol.lines import LineReader
from portico.state.background import Background
from portico.transport.connection import id_key, in_flight
from portico.transport.crossing import Crossing, HouseCrossing
from portico.transport.noted import (
    ACKNOWLEDGED,
    CANCELLED,
    INITIALIZE,
    INITIALIZED,
    SET_LEVEL,
    STAYS,
    SUBSCRIBE,
    Asked,
    Noted,
    acknowledgement,
    cancelled_id,
    noted,
    read,
    salvaged,
)
from portico.transport.pipes import PipeReader, Writer
from portico.transport.stdio import too_long

_CLOSED = (
    "the gateway ended while this was under way, and another takes over; it may or may not have "
    "been done, so look before you ask again"
)


class Bridge:
    """One client, and its way across."""

    def __init__(self, writer: Writer, stop: asyncio.Event, *, max_line: int) -> None:
        """The client is read from stdin; `stop` is set when it leaves."""
        self._writer = writer
        self._stop = stop
        self._lines = LineReader(max_line)
        self._reader = PipeReader(0, self._received, stop.set)
        self._noted = Noted()
        self._current: Crossing | None = None
        self._open: set[Crossing] = set()
        """The current one, one to be told what it must know, and those that only finish."""
        self._again: list[Asked] = []
        self._waiting: deque[bytes] = deque()
        self._is_slow = False
        self._closing = Background()
        self._retired = asyncio.Event()
        self.adrift = asyncio.Event()
        """Set while nobody takes new requests."""
        self.is_lost = False
        """True if the client reads no more."""

    def open(self) -> None:
        """Take the client's side."""
        self._writer.open(self, self._lost)
        self._reader.open()
        self._reader.pause()

    async def settle(self, crossing: Crossing) -> None:
        """Go this way from now on: tell the owner what the last one knew, then what waits."""
        self._open.add(crossing)
        crossing.open()
        if self._is_slow:
            crossing.slow()
        await self._introduce(crossing)
        if crossing.is_over:
            return
        if crossing.is_left:
            self.ended(crossing)
            return
        self._current = crossing
        self.adrift.clear()
        self._catch_up(crossing)
        self.heed()
        self._ease()

    @property
    def is_deaf(self) -> bool:
        """True if what the client says cannot be read."""
        return self._reader.failed

    @property
    def is_idle(self) -> bool:
        """True if nobody waits for anything."""
        return not self._again and not self._waiting

    def awaits(self, crossing: Crossing) -> bool:
        """True if the client waits for something that way, and reads what comes."""
        return bool(crossing.asked) and not self._is_slow

    async def part(self, within_s: float) -> None:
        """The client leaves: have what it asked for finished, within the limit."""
        if self.is_lost:
            return
        if self._current is not None:
            self._current.send(self._current.parting)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while self._open:
                    self._retired.clear()
                    await self._retired.wait()

    async def close(self) -> None:
        """Leave nothing open, and nobody without an answer."""
        self._reader.close()
        for crossing in tuple(self._open):
            self.ended(crossing)
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
        for crossing in self._open:
            crossing.slow()

    def resume(self) -> None:
        """The client has caught up."""
        self._is_slow = False
        for crossing in self._open:
            crossing.quick()

    # What crossings say.

    def heed(self) -> None:
        """Read from the client if there is room for it, and only then."""
        if self._current is None or self._current.full:
            self._reader.pause()
        else:
            self._reader.resume()

    def from_owner(self, crossing: Crossing, line: bytes) -> None:
        """Take a line for the client."""
        if line == crossing.parting:
            self._leave(crossing)
            return
        passes = [self._passes(crossing, envelope) for envelope in read(line)]
        if all(passes):
            self._say(line)

    def ended(self, crossing: Crossing) -> None:
        """Nothing more comes that way: whoever waits for it is told, or waits for the next."""
        self._take_back(crossing)
        for asked in crossing.asked.values():
            if asked.line:
                self._again.append(asked)
            else:
                self._reply(_closed(asked.id))
        for id in crossing.questions.values():
            self._say(notification(CANCELLED, {"requestId": Raw(id)}))
        crossing.over()
        self._open.discard(crossing)
        self._retired.set()
        self._closing.start(crossing.close())
        if crossing is self._current:
            self._drift()
        self._ease()

    def _leave(self, crossing: Crossing) -> None:
        """The owner leaves: it finishes what it has, and gets nothing new."""
        crossing.is_left = True
        if crossing is not self._current:
            return
        for key, asked in tuple(crossing.asked.items()):
            if asked.method in STAYS:
                del crossing.asked[key]
                crossing.hush(key)
                self._again.append(asked)
        crossing.send(crossing.parting)
        self._drift()

    def _drift(self) -> None:
        self._current = None
        self.adrift.set()
        self.heed()

    def _take_back(self, crossing: Crossing) -> None:
        """Keep for the next owner what this one has seen nothing of."""
        unsent = []
        for line in crossing.unsent():
            keys = [id_key(bytes(envelope.id)) for envelope in read(line)]
            if line != crossing.parting and not crossing.hushed.keys() & keys:
                unsent.append(line)
                for key in keys:
                    crossing.asked.pop(key, None)
        self._waiting.extendleft(reversed(unsent))

    # The next owner.

    async def _introduce(self, crossing: Crossing) -> None:
        known = self._noted
        if not known.handshake:
            return
        await crossing.tell(INITIALIZE, known.handshake)
        if known.initialized:
            crossing.send(known.initialized)
        if known.level:
            await crossing.tell(SET_LEVEL, known.level)
        for params in tuple(known.subscriptions.values()):
            crossing.tell(SUBSCRIBE, params)

    def _catch_up(self, crossing: Crossing) -> None:
        again, self._again = self._again, []
        for asked in again:
            key = id_key(asked.id)
            crossing.asked[key] = asked
            if asked.acknowledged:
                crossing.relisted.add(key)
            crossing.send(asked.line)
            if asked.method == INITIALIZE and self._noted.initialized:
                crossing.send(self._noted.initialized)
        for change in self._noted.changes() if crossing.turn else ():
            self._say(change)
        waiting, self._waiting = self._waiting, deque()
        for line in waiting:
            self._from_client(line)

    def _ease(self) -> None:
        """Once we are the owner and nothing of earlier ones is left, stand in nobody's way."""
        crossing = self._current
        if not isinstance(crossing, HouseCrossing) or len(self._open) > 1 or self._lines.pending:
            return
        if not crossing.hushed and not crossing.relisted:
            # From here on, who is answered and who is not is for our own server to know.
            crossing.asked.clear()
            crossing.questions.clear()
            self._reader.received = crossing.direct()

    # From the client.

    def _received(self, data: bytes) -> None:
        for line in self._lines.feed(data):
            if line is None:
                self._reply(too_long(self._lines, self._noted.version))
            elif line and not line.isspace():
                self._from_client(line)
        self._ease()

    def _from_client(self, line: bytes) -> None:
        messages = read(line)
        if len(messages) == 1 and self._is_elsewhere(messages[0], line):
            return
        crossing = self._current
        if crossing is None:
            self._waiting.append(line)
            return
        if not messages:
            messages, asked = [], salvaged(line)
            if asked is not None:
                crossing.asked[id_key(asked.id)] = asked
        is_batch = len(messages) > 1
        for envelope in messages:
            if envelope.id and envelope.method:
                if not is_batch and self._clashes(bytes(envelope.id)):
                    return
                asked = noted(envelope, b"" if is_batch else line)
                crossing.asked[id_key(asked.id)] = asked
            elif envelope.method == INITIALIZED:
                self._noted.initialized = line
        crossing.send(line)

    def _is_elsewhere(self, envelope: Envelope, line: bytes) -> bool:
        """True of what belongs to a crossing that is not the current one, and was sent there."""
        if not envelope.method:
            key = id_key(bytes(envelope.id))
            for crossing in self._open:
                if crossing.questions.pop(key, None) is not None:
                    crossing.send(line)
                    break
            return True  # who asked is gone, if it is not among them
        if envelope.method == CANCELLED and not envelope.id:
            key = id_key(cancelled_id(envelope))
            for crossing in self._open:
                if crossing.asked.pop(key, None) is not None:
                    crossing.send(line)
                    return True
        return False

    def _clashes(self, id: bytes) -> bool:
        """Refuse an id that is in flight: the two answers could not be told apart."""
        key = id_key(id)
        if not any(key in crossing.asked for crossing in self._open):
            return False
        self._reply(in_flight(id))
        return True

    # To the client.

    def _passes(self, crossing: Crossing, envelope: Envelope) -> bool:
        """Note what an owner says; False if it is not for the client."""
        id = bytes(envelope.id)
        if envelope.method:
            if id:
                crossing.questions[id_key(id)] = id
            elif envelope.method == CANCELLED:
                crossing.questions.pop(id_key(cancelled_id(envelope)), None)
            elif envelope.method == ACKNOWLEDGED:
                return self._acknowledged(crossing, envelope)
            return True
        key = id_key(id)
        hushed = crossing.hushed.pop(key, None)
        if hushed is not None:
            if not hushed.done():
                hushed.set_result(envelope)
            return False
        asked = crossing.asked.pop(key, None)
        if asked is not None and self._noted.answered(asked, envelope):
            self._spread(crossing, asked)
        return True

    def _spread(self, crossing: Crossing, asked: Asked) -> None:
        """What an owner that leaves was still told, the next must know as well."""
        if self._current is not None and crossing is not self._current:
            self._current.tell(asked.method, asked.params)

    def _acknowledged(self, crossing: Crossing, envelope: Envelope) -> bool:
        """A listener hears once that it is one; later, that it may have missed something."""
        id, changes = acknowledgement(envelope)
        key = id_key(id)
        if key in crossing.relisted:
            crossing.relisted.discard(key)
            for change in changes:
                self._say(change)
            return False
        if key in crossing.asked:
            crossing.asked[key].acknowledged = True
        return True

    def _lost(self) -> None:
        self.is_lost = True
        self._stop.set()

    def _reply(self, response: Response) -> None:
        self._writer.write((*response.parts, b"\n"))

    def _say(self, line: bytes) -> None:
        self._writer.write((line, b"\n"))


def _closed(id: bytes) -> Response:
    return error_response(id, INTERNAL_ERROR, _CLOSED, {"kind": "closed"})
