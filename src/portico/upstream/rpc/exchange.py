"""The pending requests of one wire, in both directions, with their timeouts."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache, partial
from time import monotonic

import msgspec
from msgspec import Raw, Struct

from portico.core.model.errors import INTERNAL_ERROR, McpError, TargetError
from portico.core.model.message import Response
from portico.core.model.methods import LISTS
from portico.core.protocol.codec import (
    Envelope,
    cancelled_id,
    encode,
    error_response,
    is_id,
    mcp_error_response,
)
from portico.core.protocol.inbound import MAX_BATCH, Malformed, read_message
from portico.core.state.background import Background
from portico.core.state.memory import LARGE
from portico.core.state.watchdog import ACTIVITY
from portico.upstream.rpc.dialect import MCP, Dialect
from portico.upstream.rpc.pending_request import (
    FOREVER,
    MAX_TASK_S,
    AwaitedRequest,
    IsTask,
    PendingRequest,
    Progress,
)
from portico.upstream.rpc.rpc_error import error_in, error_of
from portico.upstream.wires.wire import (
    NO_HEADERS,
    Data,
    Failure,
    Outgoing,
    Wire,
    quoted_stderr,
    to_bytes,
)

MAX_GARBAGE_BYTES = 10 * 1024 * 1024
"""The bytes of such lines that an upstream may send at once, with or without messages between."""
GARBAGE_BYTES_A_SECOND = 1024 * 1024
"""The bytes of such lines that are forgiven each second, so that stray lines never add up."""

_FLUSH_S = 0.5
_LINGER_S = 1.0
"""How long the sending of a request may outlast its response."""
QUOTING = ("initialize", "server/discover", *LISTS)
"""The methods whose timeout quotes the stderr of a server. That of a shared server may be about the
calls of other clients."""
_BOM = b"\xef\xbb\xbf"
_ID = re.compile(rb'"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+)\s*[,}]')

Serve = Callable[[str, bytes, bytes], Awaitable[bytes]]
"""Answers a request of the upstream: takes the method, the raw params, and the id of our request on
whose stream it arrived, if any; returns the raw result or raises McpError."""
OnNotification = Callable[[str, bytes, bytes], None]
"""Takes a notification: the method, the raw params, and the id as above."""


class _Token(Struct):
    progressToken: Raw  # noqa: N815  (a field of the wire)


class Exchange:
    """The requests of both sides over one wire. A progress token is the id of its request."""

    def __init__(
        self,
        wire: Wire,
        server: str,
        serve: Serve,
        on_notification: OnNotification,
        dialect: Dialect = MCP,
    ) -> None:
        self.wire = wire
        self.server = server
        self.failure: Failure | None = None
        """How the wire ended, if it has ended."""
        self.modern = False
        """True once the era is known to be modern: its servers send no requests."""
        self.garbage = 0
        """The number of lines that were not messages."""
        self.answered = 0
        """The number of responses to pending requests."""
        self.unmatched = 0
        """The number of responses and requests that were dropped."""
        self.on_lost: Callable[[Failure], None] | None = None
        """Called when the wire is lost."""
        self.on_stream_closed: Callable[[bytes], None] | None = None
        """Called when an upstream closes the stream of a request and expects polling."""
        self.on_late_progress: Callable[[bytes, bytes], None] | None = None
        """Called with the token and params of progress on a request that was answered."""
        self._loop = asyncio.get_running_loop()
        # asyncio's own loops use this clock; reading it through them is slower.
        is_plain = type(self._loop).time is asyncio.BaseEventLoop.time
        self._now: Callable[[], float] = monotonic if is_plain else self._loop.time
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = FOREVER
        self._dialect = dialect
        self._progress_method = dialect.progress_method
        self._cancel_method = dialect.cancel_method
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
        """True if the wire was lost or closed."""
        return self.failure is not None

    def next_id(self) -> bytes:
        """Return a new request id."""
        self._last_id += 1
        return b"%d" % self._last_id

    async def request(
        self,
        id: bytes,
        method: str,
        params: Data,
        *,
        timeout: float,
        headers: Mapping[str, str] = NO_HEADERS,
        progress: Progress | None = None,
        is_task: IsTask | None = None,
        cancellable: bool = True,
    ) -> bytes:
        """Send a request and wait for its raw result. The timeout does not end one whose call
        `is_task` by then.

        Raises ServerError with the upstream's own error, TargetError for other failures.
        """
        if self.failure is not None:
            raise self.failure.error()
        answer: asyncio.Future[bytes] = self._loop.create_future()
        pending = AwaitedRequest(method, timeout, progress, answer, is_task)
        self._expect(id, pending)
        message = Outgoing(_message(method, params, id), id, headers)
        try:
            if not self.wire.send_now(message):
                await self._send(message, pending.answer)
            return await pending.answer
        except TargetError as error:
            if error.kind == "timeout" and id in self._pending:
                self._abandon(id, f"no answer within {pending.timeout:g} s", cancellable)
            raise
        except asyncio.CancelledError:
            self._abandon(id, "the caller gave up", cancellable)
            raise
        finally:
            self._pending.pop(id, None)

    async def _send(self, message: Outgoing, answer: "asyncio.Future[bytes]") -> None:
        """Send a request until it is sent or settled; a server may respond on another stream before
        it ends the POST of the request."""
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
        """Send a request if that does not block and return its id, else an empty one; the request
        receives its outcome unless it is cancelled first."""
        if self.failure is not None:
            return b""
        self._last_id += 1
        id = b"%d" % self._last_id
        if not self.wire.send_now(Outgoing(_message(pending.method, params, id), id)):
            return b""
        self._expect(id, pending)
        return id

    def cancel(self, id: bytes) -> None:
        """Cancel a request that was begun."""
        if self._pending.pop(id, None) is not None:
            self._abandon(id, "the caller gave up", True)

    async def notify(
        self, method: str, params: bytes = b"", headers: Mapping[str, str] = NO_HEADERS
    ) -> None:
        """Send a notification."""
        await self.wire.send(Outgoing(_message(method, params), headers=headers))

    async def close(self) -> None:
        """Fail the pending requests, stop answering, and close the wire."""
        self._end(Failure(server=self.server, why="was closed", kind="closed"))
        try:
            await self._background.wait(_FLUSH_S)  # a cancellation may still be sending
            self._background.cancel()
        finally:
            await self.wire.close()

    # The receiver of the wire.

    def received(self, message: bytes, about: bytes = b"") -> None:
        """Dispatch one message or batch."""
        if ACTIVITY.is_quiet:
            ACTIVITY.note()
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
                if member.lstrip()[:1] == b"[":
                    self._reject(b"", member, "sent a batch inside a batch")
                else:
                    self.received(member, about)

    def malformed(self, remains: bytes, why: str) -> None:
        """Count a message that could not be read."""
        if self.failure is None:
            self._reject(b"", remains, why)

    def failed(self, id: bytes, failure: Failure) -> None:
        """Fail one request, with the error in the HTTP response if there is one."""
        pending = self._pending.pop(id, None)
        if pending is not None:
            self._settle(pending, error_in(failure) or failure.error())

    def lost(self, failure: Failure) -> None:
        """Fail all pending requests: the wire has ended."""
        self._end(failure)
        if self.on_lost is not None:
            self.on_lost(failure)

    def stream_closed(self, id: bytes) -> None:
        """Report a closed stream; the response will arrive on another."""
        if self.on_stream_closed is not None:
            self.on_stream_closed(id)

    def is_pending(self, id: bytes) -> bool:
        """True while this request is pending."""
        pending = self._pending.get(id)
        return pending is not None and not pending.is_done

    def _dispatch(self, envelope: Envelope, about: bytes) -> None:
        if envelope.id:
            id = bytes(envelope.id)
            self._handle_request(id, envelope.method, bytes(envelope.params), about)
        elif envelope.method == self._progress_method:
            self._handle_progress(bytes(envelope.params))
        elif envelope.method == self._cancel_method:
            self._handle_cancelled(bytes(envelope.params))
        else:
            self._on_notification(envelope.method, bytes(envelope.params), about)

    def _handle_response(self, envelope: Envelope) -> None:
        pending = self._pending.pop(bytes(envelope.id), None)
        if pending is None or pending.is_done:
            self.unmatched += 1  # an unknown id, or a second response to a request
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
        """Deliver the first outcome of a request; later ones are ignored."""
        if pending.is_done:
            return
        pending.is_done = True
        try:
            pending.finished(outcome)
        except Exception as error:  # noqa: BLE001  (a failing callback must not affect others)
            context = {"message": f"the response to {pending.method} was lost", "exception": error}
            self._loop.call_exception_handler(context)

    def _expect(self, id: bytes, pending: PendingRequest) -> None:
        self._pending[id] = pending
        pending.begun = self._now()
        pending.deadline = pending.begun + pending.timeout
        # One timer for all: it is set again only for a request that expires before it fires.
        if pending.deadline < self._timer_at:
            self._set_timer(pending.deadline)

    def _set_timer(self, when: float) -> None:
        # The time is kept here: uvloop's handle no longer has it once the timer is due.
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = when
        self._timer = self._loop.call_at(when, self._expire)

    def _expire(self) -> None:
        self._timer = None
        self._timer_at = FOREVER
        now = self._now()
        for pending in tuple(self._pending.values()):
            if pending.is_expired(now):
                self._settle(pending, self._timeout_error(pending.method, pending.timeout))
        left = [pending for pending in self._pending.values() if not pending.is_done]
        due = min((pending.deadline for pending in left), default=FOREVER)
        if due != FOREVER:
            self._set_timer(due)

    def _timeout_error(self, method: str, timeout: float) -> TargetError:
        within = f"{timeout:g} s"
        if timeout == MAX_TASK_S:
            within = f"{timeout / 3600:g} hours, the limit of a task"
        why = f"{self.server} did not answer {method} within {within}"
        if method in QUOTING:
            why += quoted_stderr(self.wire.last_output())
        return TargetError(why, kind="timeout", server=self.server)

    def _handle_progress(self, params: bytes) -> None:
        try:
            token = bytes(msgspec.json.decode(params, type=_Token).progressToken)
            pending = self._pending.get(token)
            if pending is not None and not pending.is_done:
                pending.on_progress(params, self._now())
            elif pending is None and self.on_late_progress is not None:
                self.on_late_progress(token, params)
        except msgspec.DecodeError:
            self.garbage += 1

    def _reject(self, id: bytes, message: bytes, why: str) -> None:
        """Count an invalid message, and fail the request that it answers, if that is known."""
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
        if self._garbage_lines > self._dialect.max_garbage_lines:
            self._disconnect(f"sent {self._garbage_lines} lines in a row that are not messages")
        elif self._garbage_bytes > MAX_GARBAGE_BYTES:
            self._disconnect(f"sent more than {MAX_GARBAGE_BYTES} bytes of invalid messages")

    def _disconnect(self, why: str) -> None:
        self.lost(Failure(server=self.server, why=why, kind="garbage"))
        self._background.start(self.wire.close())

    def _find_id(self, message: bytes) -> bytes:
        """Return the only pending id in an invalid message; empty for text such as a log line."""
        message = message.removeprefix(_BOM).lstrip()
        if message[:1] != b"{":
            return b""
        ends = message if len(message) <= 1024 else message[:512] + message[-512:]
        known = {id for id in _ID.findall(ends) if id in self._pending}
        return known.pop() if len(known) == 1 else b""

    def _handle_request(self, id: bytes, method: str, params: bytes, about: bytes) -> None:
        if self.modern or not is_id(id) or id in self._incoming:
            self.unmatched += 1  # a modern client never sends a response (2026-07-28, transports)
            return
        if len(self._incoming) >= self._dialect.max_incoming:
            self.unmatched += 1
            why = f"too many open questions (limit {self._dialect.max_incoming})"
            self.refuse(error_response(id, INTERNAL_ERROR, why))
            return
        task = self._background.start(self._answer(id, method, params, about))
        self._incoming[id] = task
        task.add_done_callback(lambda _: self._request_done(id))
        self._extend_all()

    def refuse(self, response: Response) -> None:
        """Send the response to one request too many, if that does not block."""
        self.wire.send_now(Outgoing(response.encode()))

    def _request_done(self, id: bytes) -> None:
        self._incoming.pop(id, None)
        self._extend_all()

    def _extend_all(self) -> None:
        # A question does not identify its call, so no call expires while one is open.
        for pending in self._pending.values():
            pending.extend(self._now(), suspended=bool(self._incoming))
        # The timer may be set to the extended deadlines, which is too late now.
        due = min((pending.deadline for pending in self._pending.values()), default=FOREVER)
        if due < self._timer_at:
            self._set_timer(due)

    async def _answer(self, id: bytes, method: str, params: bytes, about: bytes) -> None:
        try:
            response = Response(id=id, result=await self._serve(method, params, about))
        except McpError as error:
            response = mcp_error_response(id, error)
        await self.respond(response)

    async def respond(self, response: Response) -> None:
        """Send the response to a request of the upstream."""
        try:
            await self.wire.send(Outgoing(response.encode()))
        except TargetError:
            self.unmatched += 1  # the upstream no longer accepts the response

    def _handle_cancelled(self, params: bytes) -> None:
        id = cancelled_id(params)
        task = self._incoming.get(id)
        if task is None or task.cancelling():
            return
        task.cancel()
        code = self._dialect.cancelled_code
        if code is not None:
            self._background.start(self._answer_cancelled(id, code, task))

    async def _answer_cancelled(self, id: bytes, code: int, task: "asyncio.Task[None]") -> None:
        await asyncio.wait((task,))
        if task.cancelled():  # it may have been answered just before
            await self.respond(error_response(id, code, "the request was cancelled"))

    def _abandon(self, id: bytes, reason: str, cancellable: bool) -> None:
        """Cancel a request at the upstream."""
        if self.failure is not None:
            return
        # Closing its stream is the cancellation where each request has one and the era is modern.
        if cancellable and not (self.modern and self.wire.has_headers):
            self._background.start(self._cancel(id, reason))
        else:
            self.wire.abandon(id)

    async def _cancel(self, id: bytes, reason: str) -> None:
        params: dict[str, object] = {"requestId": Raw(id)}
        if self._dialect.has_cancel_reason:
            params["reason"] = reason
        try:
            await self.notify(self._cancel_method, encode(params))
        except TargetError:
            pass  # the wire is lost: there is nothing left to cancel
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
    """Return a message, encoded at once unless it is large."""
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
