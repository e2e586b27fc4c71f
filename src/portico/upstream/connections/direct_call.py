"""The direct path of a call that only needs forwarding.

It has no task, no future and no timer of its own: it writes a message, and another one when the
response arrives. Every other call (a connection to open, several rounds, progress, a queue) takes
the general path through `Relay.answer`, as does a retry after its upstream exited.
"""

import asyncio
from collections.abc import Awaitable, Callable

from portico.core.model.errors import INTERNAL_ERROR, McpError, TargetError
from portico.core.model.message import Response
from portico.core.protocol.codec import error_response, mcp_error_response
from portico.core.protocol.eras import is_input_required, legacy_result, modern_result
from portico.core.protocol.tasks import TASK
from portico.core.state.pending import Pending
from portico.upstream.connections.backoff import CircuitBreaker
from portico.upstream.connections.caller import Call
from portico.upstream.connections.concurrency_limiter import ConcurrencyLimiter
from portico.upstream.connections.connection import UpstreamConnection
from portico.upstream.connections.era_adapter import translate_error
from portico.upstream.connections.session import UpstreamSession
from portico.upstream.rpc.pending_request import PendingRequest
from portico.upstream.rpc.rpc_error import ServerError

_ANSWERS = (bytes, ServerError)
Translate = Callable[[Call, UpstreamSession, bytes | ServerError], Response]
"""Turns the upstream's outcome into a response."""
Outcome = bytes | TargetError | ServerError
Continue = Callable[[Call, UpstreamSession, Outcome], Callable[[], Awaitable[Response]] | None]
"""Returns how a call continues by the general path: a retry, if that is harmless, or the task
that was sent in place of a result."""


class DirectCall(PendingRequest, Pending):
    """One running call; it is answered once, or cancelled."""

    __slots__ = (
        "_breaker",
        "_call",
        "_connection",
        "_continue",
        "_id",
        "_is_over",
        "_limiter",
        "_reply",
        "_session",
        "_task",
        "_translate",
        "response",
        "steps",
    )

    def __init__(
        self,
        call: Call,
        timeout: float,
        connection: UpstreamConnection,
        session: UpstreamSession,
        limiter: ConcurrencyLimiter,
        breaker: CircuitBreaker,
        go_on: Continue,
        translate: Translate,
    ) -> None:
        self.method = call.request.method
        self.timeout = timeout
        self.progress = None
        self.is_task = None if call.context.task_control is None else call.is_task
        self.is_done = False
        self._translate = translate
        self._call = call
        self._connection = connection
        self._session = session
        self._limiter = limiter
        self._breaker = breaker
        self._continue = go_on
        self._id = b""
        self._is_over = False
        self._reply = self.response = None
        self.steps = ()
        self._task: asyncio.Task[None] | None = None

    def begin(self, params: bytes) -> bool:
        """Send the call; False if it must take the general path."""
        session, call = self._session, self._call
        id = session.exchange.begin(params, self)
        if not id:
            return False
        self._id = id
        session.calls[id] = call
        session.is_used = True
        if call.caller.session is not None and call.caller is not session.latest:
            session.attach(call.caller)
        self._connection.begin()
        return True

    def cancel(self) -> None:
        """Drop the response, and notify the upstream if it is still pending."""
        if self._task is not None:
            self._task.cancel()
        if not self._is_over:
            self._end(answered=False)
            self._session.exchange.cancel(self._id)
        super().cancel()

    def finished(self, outcome: bytes | Exception) -> None:
        """Respond with the outcome."""
        if self._is_over:
            return
        call = self._call
        if isinstance(outcome, _ANSWERS):
            self._end(answered=True)
            again = None
            if type(outcome) is not bytes or outcome.find(TASK) >= 0 or outcome.find(b"\\u") >= 0:
                again = self._continue(call, self._session, outcome)
            if again is not None:
                self._task = asyncio.create_task(self._repeat(again))
                return
            response = self._translate(call, self._session, outcome)
        else:
            assert isinstance(outcome, TargetError)
            self._breaker.call_failed(outcome, 0)  # after a failure calls take the general path
            if outcome.kind == "timeout":
                self._session.exchange.cancel(self._id)
            self._end(answered=False)
            retry = self._continue(call, self._session, outcome)
            if retry is not None:
                self._task = asyncio.create_task(self._repeat(retry))
                return
            response = mcp_error_response(call.request.id, as_mcp_error(outcome))
        if call.sending is None or call.sending.is_empty:
            self.arrived(response)
        else:
            self._task = asyncio.create_task(self._flushed(response))

    def _end(self, answered: bool) -> None:
        self._is_over = True
        self._session.calls.pop(self._id, None)
        if not answered:
            self._session.abandon(self._call)
        if self._limiter.waiting:
            self._limiter.release()
        else:
            self._limiter.used -= 1
        self._connection.end(answered)

    async def _flushed(self, response: Response) -> None:
        await self._call.outbox.flush()
        self.arrived(response)

    async def _repeat(self, retry: Callable[[], Awaitable[Response]]) -> None:
        try:
            response = await retry()
        except McpError as error:
            response = mcp_error_response(self._call.request.id, error)
        except TargetError as error:
            response = mcp_error_response(self._call.request.id, as_mcp_error(error))
        except Exception:  # a bug of our own: the client still gets a response
            self.arrived(error_response(self._call.request.id, INTERNAL_ERROR, "internal error"))
            raise
        self.arrived(response)


def as_mcp_error(error: TargetError) -> McpError:
    """Return a failure of Portico or the upstream as the error of a call."""
    data = {"kind": error.kind, "server": error.server, **error.details}
    return McpError(str(error), data=data)


def unchanged(call: Call, session: UpstreamSession, outcome: bytes | ServerError) -> Response:
    """Return the response of an upstream of the client's own era."""
    id = call.request.id
    if isinstance(outcome, bytes):
        return Response(id=id, result=outcome)
    return Response(id=id, error=outcome.raw, code=outcome.code)


def from_legacy(call: Call, session: UpstreamSession, outcome: bytes | ServerError) -> Response:
    """Return the response of a legacy upstream, translated for a modern client."""
    if call.missing is not None:
        return mcp_error_response(call.request.id, call.missing)
    try:
        if isinstance(outcome, bytes):
            result = modern_result(call.request.method, outcome, session.info)
            return Response(id=call.request.id, result=result)
        outcome = translate_error(call, outcome)
    except ServerError as error:
        outcome = error
    except McpError as error:
        return mcp_error_response(call.request.id, error)
    return unchanged(call, session, outcome)


def from_modern(call: Call, session: UpstreamSession, outcome: bytes | ServerError) -> Response:
    """Return the response of a modern upstream to a legacy client without questions."""
    try:
        if not isinstance(outcome, bytes):
            outcome = translate_error(call, outcome)
        elif is_input_required(outcome):
            why = f"{session.name} requires input that its client cannot provide"
            data = {"kind": "protocol", "server": session.name}
            return mcp_error_response(call.request.id, McpError(why, data=data))
    except ServerError as error:
        return unchanged(call, session, error)
    return Response(id=call.request.id, result=legacy_result(outcome))
