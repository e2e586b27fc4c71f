"""The bridge between a client and the gateway's owner, or the next owner when that one ends.

Lines pass unchanged. The bridge records the session's state for the next owner, and the pending
requests: each gets exactly one response, whatever happens to owners.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw

from portico.core.model.errors import INTERNAL_ERROR
from portico.core.model.message import Response
from portico.core.model.methods import INITIALIZED, LISTEN
from portico.core.model.types import Change
from portico.core.protocol.codec import Envelope, cancelled_id, error_response, notification
from portico.core.protocol.line_reader import LineReader
from portico.core.protocol.listen import change_message
from portico.core.state.background import Background
from portico.core.state.report import report
from portico.edge.transport.calls_in_flight import duplicate_id_error, id_key
from portico.edge.transport.client_connection import message_too_long
from portico.edge.transport.pipes import PipeReader, Writer
from portico.edge.windows.connected_windows import DRAIN, KEEP, REPORT
from portico.edge.windows.owner_connection import OwnerConnection
from portico.edge.windows.session_state import (
    ACKNOWLEDGED,
    CANCELLED,
    INITIALIZE,
    SET_LEVEL,
    SUBSCRIBE,
    SessionState,
    TrackedRequest,
    acknowledgement,
    read_messages,
    salvaged,
    track,
)

_CLOSED = (
    "the gateway ended during this request, which may or may not have been carried out; "
    "a new gateway starts: check the effect before you retry"
)
_CONTROL_PREFIX = b"#"
"""The start of a control line between window and owner."""
_MAX_QUEUED = 1000
"""Lines that are read from the client for the next owner while this one drains."""


class Bridge:
    """One client and its connection to the owner."""

    def __init__(self, writer: Writer, stop: asyncio.Event, *, max_line: int) -> None:
        """The client is read from stdin; `stop` is set when it disconnects."""
        self._writer = writer
        self._stop = stop
        self._lines = LineReader(max_line)
        self._reader = PipeReader(0, self._received, stop.set)
        self._state = SessionState()
        self._connection: OwnerConnection | None = None
        """To the current owner; it receives the session's state first, until `_is_ready`."""
        self._is_ready = False
        self._to_resend: list[TrackedRequest] = []
        self._queued: deque[bytes] = deque()
        self._is_client_slow = False
        self._background = Background()
        self.disconnected = asyncio.Event()
        """Set while no owner is connected."""
        self.kept: dict[str, Any] = {}
        """Preferences for the next owner."""
        self.output_failed = False
        """True if the client has stopped reading."""

    def open(self) -> None:
        """Start reading from and writing to the client."""
        self._writer.open(self, self._output_lost)
        self._reader.open()
        self._reader.pause()

    async def switch_to(self, connection: OwnerConnection) -> None:
        """Use this connection: replay the session's state, then send the queued requests."""
        self._connection = connection
        self.disconnected.clear()
        connection.open()
        if self._is_client_slow:
            connection.pause_reading()
        await self._replay_session(connection)
        if connection.is_closed or connection.is_draining:
            return
        self._is_ready = True
        self._send_queued(connection)
        self.update_backpressure()

    @property
    def input_failed(self) -> bool:
        """True if reading from the client failed."""
        return self._reader.failed

    @property
    def is_idle(self) -> bool:
        """True if no request waits for an owner."""
        return not self._to_resend and not self._queued

    def is_waiting_on(self, connection: OwnerConnection) -> bool:
        """True if the client has requests pending there, and reads the responses."""
        return bool(connection.pending) and not self._is_client_slow

    def start_refresh(self) -> None:
        """Refresh the catalogs of all servers."""
        if self._connection is not None:
            self._connection.start_refresh()

    async def finish(self, within_s: float) -> None:
        """Wait for the pending responses of a client that leaves, up to the timeout."""
        if self.output_failed or self._connection is None:
            return
        self._connection.finish()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self.disconnected.wait()

    async def close(self) -> None:
        """Close both sides, and fail the requests that are still pending."""
        self._reader.close()
        if self._connection is not None:
            self.disconnect()
        for request in self._to_resend:
            self._reply(_closed_response(request.id))
        for envelope in (envelope for line in self._queued for envelope in read_messages(line)):
            if envelope.id and envelope.method:
                self._reply(_closed_response(bytes(envelope.id)))
        await self._background.wait()
        await self._writer.close()

    # Backpressure from the client.

    def pause(self) -> None:
        """The client reads slowly."""
        self._is_client_slow = True
        if self._connection is not None:
            self._connection.pause_reading()

    def resume(self) -> None:
        """The client has caught up."""
        self._is_client_slow = False
        if self._connection is not None:
            self._connection.resume_reading()

    # From the owner.

    def update_backpressure(self) -> None:
        """Read from the client only while the owner has room."""
        is_full = self._connection is None or self._connection.is_full
        if is_full or not self._is_ready or len(self._queued) > _MAX_QUEUED:
            self._reader.pause()
        else:
            self._reader.resume()

    def from_owner(self, line: bytes) -> None:
        """Handle a line of the owner: a message for the client, or a control line."""
        connection = self._connection
        assert connection is not None
        if line.startswith(_CONTROL_PREFIX):
            if line.startswith(REPORT):
                report(msgspec.json.decode(line[len(REPORT) :], type=str))
            elif line.startswith(KEEP):
                self.kept |= msgspec.json.decode(line[len(KEEP) :], type=dict[str, Any])
            elif line == DRAIN:
                connection.is_draining = True
                connection.finish()
            return
        forwarded = [
            self._track_from_owner(connection, envelope) for envelope in read_messages(line)
        ]
        if all(forwarded):
            self._send(line)

    def disconnect(self) -> None:
        """End the connection: fail its requests, or keep those that may be sent again."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        self._is_ready = False
        self._requeue_unsent(connection)
        for request in connection.pending.values():
            if request.line:
                self._to_resend.append(request)
            else:
                self._reply(_closed_response(request.id))
        for id in connection.questions.values():
            self._send(notification(CANCELLED, {"requestId": Raw(id)}))
        connection.mark_closed()
        self._background.start(connection.close())
        self.disconnected.set()
        self.update_backpressure()

    def _requeue_unsent(self, connection: OwnerConnection) -> None:
        """Queue the lines for the next owner of which this one has received nothing."""
        unsent = []
        for line in connection.unsent():
            keys = [id_key(bytes(envelope.id)) for envelope in read_messages(line)]
            if not connection.internal_calls.keys() & keys:
                unsent.append(line)
                for key in keys:
                    connection.pending.pop(key, None)
        self._queued.extendleft(reversed(unsent))

    # The next owner.

    async def _replay_session(self, connection: OwnerConnection) -> None:
        state = self._state
        if not state.handshake:
            return
        await connection.call(INITIALIZE, state.handshake)
        if state.initialized:
            connection.send(state.initialized)
        if state.level:
            await connection.call(SET_LEVEL, state.level)
        for params in tuple(state.subscriptions.values()):
            connection.call(SUBSCRIBE, params)

    def _send_queued(self, connection: OwnerConnection) -> None:
        resent, self._to_resend = self._to_resend, []
        for request in resent:
            key = id_key(request.id)
            connection.pending[key] = request
            if request.acknowledged:
                connection.resumed_listeners.add(key)
            connection.send(request.line)
            if request.method == INITIALIZE and self._state.initialized:
                connection.send(self._state.initialized)
        if connection.generation:
            self._background.start(self._compare_lists(connection))
        queued, self._queued = self._queued, deque()
        for line in queued:
            self._from_client(line)

    async def _compare_lists(self, connection: OwnerConnection) -> None:
        """Notify the client of the lists that the next owner lists otherwise than it has read."""
        calls = [(page, connection.call(page.method, page.params)) for page in self._state.lists]
        changed = {page.kind for page, call in calls if page.differs(await call)}
        if connection.is_closed:
            return  # the next owner is compared instead
        connection.changed_lists = changed
        self._announce(b"", self._state.kinds, changed)
        for id, kinds in connection.acknowledged:
            self._announce(id, kinds, changed)

    def _announce(self, id: bytes, kinds: Sequence[str], changed: set[str]) -> None:
        """Notify a legacy client, or a listener by its id, of the changed lists among these."""
        for kind in kinds:
            if kind in changed:
                self._send(change_message(Change(kind), id))

    # From the client.

    def _received(self, data: bytes) -> None:
        lines = self._lines
        for line in lines.feed(data):
            if line is None:
                self._reply(message_too_long(lines.ends, lines.limit, self._state.version))
            elif line and not line.isspace():
                self._from_client(line)

    def _from_client(self, line: bytes) -> None:
        if line.startswith(_CONTROL_PREFIX):
            line = b" " + line  # still invalid, and not a control line
        connection = self._connection
        if connection is None or not self._is_ready:
            self._queued.append(line)
            return
        messages = read_messages(line)
        if connection.is_draining and not all(_is_follow_up(connection, one) for one in messages):
            self._queued.append(line)
            self.update_backpressure()
            return
        if not messages:
            request = salvaged(line)
            if request is not None:
                connection.pending[id_key(request.id)] = request
        is_batch = len(messages) > 1
        for envelope in messages:
            if not self._track_from_client(connection, envelope, line, is_batch):
                return
        connection.send(line)

    def _track_from_client(
        self, connection: OwnerConnection, envelope: Envelope, line: bytes, is_batch: bool
    ) -> bool:
        """Track a message of the client; return False if it is not for the owner."""
        id, method = bytes(envelope.id), envelope.method
        if id and method:
            key = id_key(id)
            if not is_batch and key in connection.pending:
                # The two responses could not be distinguished.
                self._reply(duplicate_id_error(id))
                return False
            connection.pending[key] = track(envelope, b"" if is_batch else line)
        elif not method:
            # The question may be of an earlier owner.
            return connection.questions.pop(id_key(id), None) is not None or is_batch
        elif method == CANCELLED:
            connection.pending.pop(id_key(cancelled_id(envelope.params)), None)
        elif method == INITIALIZED:
            self._state.initialized = line
        return True

    # To the client.

    def _track_from_owner(self, connection: OwnerConnection, envelope: Envelope) -> bool:
        """Track a message of the owner; return False if it is not for the client."""
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
        call = connection.internal_calls.pop(key, None)
        if call is not None:
            if not call.done():
                call.set_result(envelope)
            return False
        request = connection.pending.pop(key, None)
        if request is not None and request.method == LISTEN and connection.is_draining:
            connection.pending[key] = request  # it continues at the next owner
            return False
        if request is not None:
            connection.has_answered = True
            self._state.record_result(request, envelope)
        return True

    def _acknowledged(self, connection: OwnerConnection, envelope: Envelope) -> bool:
        """Pass on the first acknowledgement; replace later ones by change notifications."""
        id, kinds = acknowledgement(envelope)
        key = id_key(id)
        if key in connection.resumed_listeners:
            connection.resumed_listeners.discard(key)
            if connection.changed_lists is None:
                connection.acknowledged.append((id, kinds))
            else:
                self._announce(id, kinds, connection.changed_lists)
            return False
        if key in connection.pending:
            connection.pending[key].acknowledged = True
        return True

    def _output_lost(self) -> None:
        self.output_failed = True
        self._stop.set()

    def _reply(self, response: Response) -> None:
        self._writer.write((*response.parts, b"\n"))

    def _send(self, line: bytes) -> None:
        self._writer.write((line, b"\n"))


def _is_follow_up(connection: OwnerConnection, envelope: Envelope) -> bool:
    """True for a response, and for the cancellation of a request that is pending there."""
    if envelope.method == CANCELLED:
        return id_key(cancelled_id(envelope.params)) in connection.pending
    return not envelope.method


def _closed_response(id: bytes) -> Response:
    return error_response(id, INTERNAL_ERROR, _CLOSED, {"kind": "closed"})
