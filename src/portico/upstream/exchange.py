"""Requests under way, each way, with one upstream: who waits for what, and for how long."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache, partial
from time import monotonic

import msgspec
from msgspec import Raw, Struct

from portico.model.errors import INTERNAL_ERROR, McpError, TargetError
from portico.model.message import Response
from portico.protocol.codec import (
    Envelope,
    cancelled_id,
    encode,
    error_response,
    is_id,
    mcp_error_response,
)
from portico.protocol.inbound import MAX_BATCH, Malformed, read_message
from portico.state.background import Background
from portico.state.memory import LARGE
from portico.upstream.pending_request import FOREVER, AwaitedRequest, PendingRequest, Progress
from portico.upstream.rpc_error import error_in, error_of
from portico.wires.wire import NO_HEADERS, Data, Failure, Outgoing, Wire, to_bytes

MAX_GARBAGE_LINES = 1000
"""Lines in a row that an upstream may write that are not messages."""
MAX_GARBAGE_BYTES = 10 * 1024 * 1024
"""Bytes of them that an upstream may write at once, whatever comes between."""
GARBAGE_BYTES_A_SECOND = 1024 * 1024
"""Bytes of them that are forgotten each second, so that a stray line now and then never adds up."""

MAX_INCOMING = 1000
"""How many of its own requests an upstream may have open."""

_FLUSH_S = 0.5
_LINGER_S = 1.0
"""How long what brought a request may take to end once that is answered."""
_BOM = b"\xef\xbb\xbf"
_ID = re.compile(rb'"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+)\s*[,}]')

Serve = Callable[[str, bytes, bytes], Awaitable[bytes]]
"""Answers a request of the upstream's: method, raw params and the id of the request of ours whose
stream it came on, if it came on one; raw result out, or McpError."""
OnNotification = Callable[[str, bytes, bytes], None]
"""Takes a notification: method, raw params, and the id as above."""


class _Token(Struct):
    progressToken: Raw  # noqa: N815  (a field of the wire)


class Exchange:
    """One conversation over one wire. Ids are ours; a progress token is the id it belongs to."""

    def __init__(
        self, wire: Wire, server: str, serve: Serve, on_notification: OnNotification
    ) -> None:
        self.wire = wire
        self.server = server
        self.failure: Failure | None = None
        """How the wire ended, if it has ended by itself."""
        self.modern = False
        """True once the modern era is settled: its servers ask nothing by themselves."""
        self.garbage = 0
        """Lines that were no messages."""
        self.answered = 0
        """Answers that somebody waited for."""
        self.unmatched = 0
        """Answers that nobody waited for."""
        self.on_lost: Callable[[Failure], None] | None = None
        """Told when the wire ends by itself."""
        self.on_stream_closed: Callable[[bytes], None] | None = None
        """Told when an upstream wants to be polled for the answer to a request."""
        self._loop = asyncio.get_running_loop()
        # asyncio's own loops go by this clock; to ask it through them takes longer.
        is_plain = type(self._loop).time is asyncio.BaseEventLoop.time
        self._now: Callable[[], float] = monotonic if is_plain else self._loop.time
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = FOREVER
        self._serve = serve
        self._on_notification = on_notification
        self._pending: dict[bytes, PendingRequest] = {}
        self._incoming: dict[bytes, asyncio.Task[None]] = {}
        self._background = Background()
        self._last_id = 0
        self._garbage_lines = 0
        self._garbage_bytes = 0.0
        self._garbage_at = 0.0

    async def open(self) -> None:
        """Open the wire."""
        await self.wire.open(self)

    def is_over(self) -> bool:
        """True if the wire has ended by itself, or was closed."""
        return self.failure is not None

    def next_id(self) -> bytes:
        """An id that was never used before."""
        self._last_id += 1
        return b"%d" % self._last_id

    async def ask(
        self,
        id: bytes,
        method: str,
        params: Data,
        *,
        timeout: float,
        headers: Mapping[str, str] = NO_HEADERS,
        progress: Progress | None = None,
        cancellable: bool = True,
    ) -> bytes:
        """Send a request and wait for its raw result.

        Raises McpError with the upstream's own error, TargetError for anything else.
        """
        if self.failure is not None:
            raise self.failure.error()
        asked = AwaitedRequest(method, timeout, progress, self._loop.create_future())
        self._expect(id, asked)
        message = Outgoing(_message(method, params, id), id, headers)
        try:
            if not self.wire.send_now(message):
                await self._send(message, asked.answer)
            return await asked.answer
        except TargetError as error:
            if error.kind == "timeout" and id in self._pending:
                self._abandon(id, f"no answer within {timeout:g} s", cancellable)
            raise
        except asyncio.CancelledError:
            self._abandon(id, "the caller gave up", cancellable)
            raise
        finally:
            self._pending.pop(id, None)

    async def _send(self, message: Outgoing, answer: "asyncio.Future[bytes]") -> None:
        """Send a request, unless nobody waits for its answer any more; that may come first, from
        servers that end the POST which brought the request only later."""
        sending = self._background.start(self.wire.send(message))
        sending.add_done_callback(lambda sent: sent.cancelled() or sent.exception())
        is_needed = False
        try:
            await asyncio.wait((sending, answer), return_when=asyncio.FIRST_COMPLETED)
            is_needed = sending.done() or answer.exception() is None
        finally:
            if not is_needed:
                sending.cancel()
        if sending.done():
            sending.result()
        elif is_needed:
            ending = self._loop.call_later(_LINGER_S, sending.cancel)
            sending.add_done_callback(lambda _: ending.cancel())

    def begin(self, params: bytes, pending: PendingRequest) -> bytes:
        """Send a request if that needs no waiting, and return its id, else nothing; it is told of
        its outcome, unless it is taken back first."""
        if self.failure is not None:
            return b""
        self._last_id += 1
        id = b"%d" % self._last_id
        if not self.wire.send_now(Outgoing(_message(pending.method, params, id), id)):
            return b""
        self._expect(id, pending)
        return id

    def cancel(self, id: bytes) -> None:
        """Nobody waits any more for a request that was begun."""
        if self._pending.pop(id, None) is not None:
            self._abandon(id, "the caller gave up", True)

    async def notify(
        self, method: str, params: bytes = b"", headers: Mapping[str, str] = NO_HEADERS
    ) -> None:
        """Send a notification."""
        await self.wire.send(Outgoing(_message(method, params), headers=headers))

    async def close(self) -> None:
        """Fail what still waits, stop answering, and close the wire."""
        self._end(Failure(server=self.server, why="was closed", kind="closed"))
        try:
            await self._background.wait(_FLUSH_S)  # a cancellation may be on its way out
            self._background.cancel()
        finally:
            await self.wire.close()

    # The receiver, as a wire knows it.

    def received(self, message: bytes, about: bytes = b"") -> None:
        """Sort one message."""
        if self.failure is not None:
            return
        try:
            found = read_message(message.removeprefix(_BOM))
        except Malformed as bad:
            self._reject(bad.id, message, f"sent an invalid message: {bad.message}")
            return
        self._garbage_lines = 0
        if isinstance(found, Envelope):
            if found.method:
                self._dispatch(found, about)
            else:
                self._handle_response(found)
        elif len(found) > MAX_BATCH:
            self._reject(b"", message, f"sent a batch of more than {MAX_BATCH} messages")
        else:
            for member in found:  # a batch, which 2025-03-26 allows
                self.received(member, about)

    def malformed(self, remains: bytes, why: str) -> None:
        """A message could not even be read."""
        if self.failure is None:
            self._reject(b"", remains, why)

    def failed(self, id: bytes, failure: Failure) -> None:
        """One request will get no answer, or has got it with an HTTP error."""
        pending = self._pending.pop(id, None)
        if pending is not None:
            self._settle(pending, error_in(failure) or failure.error())

    def lost(self, failure: Failure) -> None:
        """The wire has ended: everyone who waits learns it now."""
        self._end(failure)
        if self.on_lost is not None:
            self.on_lost(failure)

    def stream_closed(self, id: bytes) -> None:
        """The stream of one request was closed; its answer will come on another."""
        if self.on_stream_closed is not None:
            self.on_stream_closed(id)

    def is_pending(self, id: bytes) -> bool:
        """True while somebody waits for this answer."""
        pending = self._pending.get(id)
        return pending is not None and not pending.is_done

    def _dispatch(self, envelope: Envelope, about: bytes) -> None:
        if envelope.id:
            id = bytes(envelope.id)
            self._handle_request(id, envelope.method, bytes(envelope.params), about)
        elif envelope.method == "notifications/progress":
            self._handle_progress(bytes(envelope.params))
        elif envelope.method == "notifications/cancelled":
            self._handle_cancelled(bytes(envelope.params))
        else:
            self._on_notification(envelope.method, bytes(envelope.params), about)

    def _handle_response(self, envelope: Envelope) -> None:
        pending = self._pending.pop(bytes(envelope.id), None)
        if pending is None or pending.is_done:
            self.unmatched += 1  # a wrong id, or a second answer: the first one stands
            return
        self.answered += 1
        outcome: bytes | Exception = bytes(envelope.result)
        if envelope.error and bytes(envelope.error) != b"null":
            outcome = error_of(bytes(envelope.error))
        elif not outcome:
            why = f"{self.server} sent a response with neither result nor error"
            outcome = TargetError(why, kind="garbage", server=self.server)
        self._settle(pending, outcome)

    def _settle(self, pending: PendingRequest, outcome: bytes | Exception) -> None:
        """Tell whoever waits; the first outcome stands."""
        if pending.is_done:
            return
        pending.is_done = True
        try:
            pending.finished(outcome)
        except Exception as error:  # noqa: BLE001  (who fails to hear it must not cost the others)
            context = {"message": f"the response to {pending.method} was lost", "exception": error}
            self._loop.call_exception_handler(context)

    def _expect(self, id: bytes, pending: PendingRequest) -> None:
        self._pending[id] = pending
        pending.begun = self._now()
        pending.deadline = pending.begun + pending.timeout
        # One timer for all: it is set anew only for a request that ends before it rings.
        if pending.deadline < self._timer_at:
            self._set_timer(pending.deadline)

    def _set_timer(self, when: float) -> None:
        # When it rings is kept here: uvloop's handle does not know it once the time has come.
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = when
        self._timer = self._loop.call_at(when, self._expire)

    def _expire(self) -> None:
        self._timer = None
        self._timer_at = FOREVER
        now = self._now()
        for pending in tuple(self._pending.values()):
            if pending.deadline <= now:
                self._settle(pending, self._timeout_error(pending.method, pending.timeout))
        left = [pending for pending in self._pending.values() if not pending.is_done]
        due = min((pending.deadline for pending in left), default=FOREVER)
        if due != FOREVER:
            self._set_timer(due)

    def _timeout_error(self, method: str, timeout: float) -> TargetError:
        why = f"{self.server} did not answer {method} within {timeout:g} s"
        return TargetError(why, kind="timeout", server=self.server)

    def _handle_progress(self, params: bytes) -> None:
        try:
            token = bytes(msgspec.json.decode(params, type=_Token).progressToken)
            pending = self._pending.get(token)
            if pending is not None and not pending.is_done:
                pending.on_progress(params, self._now())
        except msgspec.DecodeError:
            self.garbage += 1

    def _reject(self, id: bytes, message: bytes, why: str) -> None:
        """Count it, and fail the call it would have answered, if that can be told."""
        self.garbage += 1
        self._garbage_lines += 1
        now = self._now()
        forgotten = (now - self._garbage_at) * GARBAGE_BYTES_A_SECOND
        self._garbage_bytes = max(0.0, self._garbage_bytes - forgotten) + len(message)
        self._garbage_at = now
        pending = self._pending.pop(id or self._find_id(message), None)
        if pending is not None:
            error = TargetError(f"{self.server} {why}", kind="garbage", server=self.server)
            self._settle(pending, error)
        if self._garbage_lines > MAX_GARBAGE_LINES:
            self._disconnect(f"sent {self._garbage_lines} lines in a row that are not messages")
        elif self._garbage_bytes > MAX_GARBAGE_BYTES:
            self._disconnect(f"sent more than {MAX_GARBAGE_BYTES} bytes of invalid messages")

    def _disconnect(self, why: str) -> None:
        self.lost(Failure(server=self.server, why=why, kind="garbage"))
        self._background.start(self.wire.close())

    def _find_id(self, message: bytes) -> bytes:
        """The one id of ours in a broken message; none in what only quotes one, like a log line."""
        message = message.removeprefix(_BOM).lstrip()
        if message[:1] != b"{":
            return b""
        ends = message if len(message) <= 1024 else message[:512] + message[-512:]
        known = {id for id in _ID.findall(ends) if id in self._pending}
        return known.pop() if len(known) == 1 else b""

    def _handle_request(self, id: bytes, method: str, params: bytes, about: bytes) -> None:
        if self.modern or not is_id(id) or id in self._incoming:
            self.unmatched += 1  # a modern client never writes a response (2026-07-28, transports)
            return
        if len(self._incoming) >= MAX_INCOMING:
            self.unmatched += 1
            why = f"too many open questions (limit {MAX_INCOMING})"
            self.wire.send_now(Outgoing(error_response(id, INTERNAL_ERROR, why).encode()))
            return
        task = self._background.start(self._answer(id, method, params, about))
        self._incoming[id] = task
        task.add_done_callback(lambda _: self._request_done(id))
        self._extend_all()

    def _request_done(self, id: bytes) -> None:
        self._incoming.pop(id, None)
        self._extend_all()

    def _extend_all(self) -> None:
        # Nothing says which call a question belongs to, so none runs out while we think.
        for pending in self._pending.values():
            pending.extend(self._now(), suspended=bool(self._incoming))
        # Where it had all the time there is, the clock may ring far too late for it now.
        due = min((pending.deadline for pending in self._pending.values()), default=FOREVER)
        if due < self._timer_at:
            self._set_timer(due)

    async def _answer(self, id: bytes, method: str, params: bytes, about: bytes) -> None:
        try:
            response = Response(id=id, result=await self._serve(method, params, about))
        except McpError as error:
            response = mcp_error_response(id, error)
        try:
            await self.wire.send(Outgoing(response.encode()))
        except TargetError:
            self.unmatched += 1  # it no longer wants to know

    def _handle_cancelled(self, params: bytes) -> None:
        task = self._incoming.get(cancelled_id(params))
        if task is not None:
            task.cancel()

    def _abandon(self, id: bytes, reason: str, cancellable: bool) -> None:
        """Tell the upstream that nobody waits any more."""
        if self.failure is not None:
            return
        # Closing its stream is the cancellation where each request has one and the era is modern.
        if cancellable and not (self.modern and self.wire.mirrors):
            self._background.start(self._cancel(id, reason))
        else:
            self.wire.abandon(id)

    async def _cancel(self, id: bytes, reason: str) -> None:
        params = encode({"requestId": Raw(id), "reason": reason})
        try:
            await self.notify("notifications/cancelled", params)
        except TargetError:
            pass  # gone: there is nothing left to cancel
        finally:
            self.wire.abandon(id)

    def _end(self, failure: Failure) -> None:
        if self.failure is not None:
            return
        self.failure = failure
        if self._timer is not None:
            self._timer.cancel()
        waiting, self._pending = self._pending, {}
        for pending in waiting.values():
            self._settle(pending, failure.error())
        for task in self._incoming.values():
            task.cancel()


def _message(method: str, params: Data, id: bytes = b"") -> Data:
    """A message, which is made at once unless it is large."""
    head = b'{"jsonrpc":"2.0","id":' + id if id else b'{"jsonrpc":"2.0"'
    if not params:
        return b'%s,"method":%s}' % (head, encode(method))
    named = _named(method)
    if isinstance(params, bytes) and len(params) <= LARGE:
        return b"".join((head, named, params, b"}"))
    return partial(_joined, head + named, params)


def _joined(head: bytes, params: Data) -> bytes:
    return b"".join((head, to_bytes(params), b"}"))


@lru_cache(64)
def _named(method: str) -> bytes:
    return b',"method":%s,"params":' % encode(method)
