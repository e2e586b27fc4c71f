"""The short way for a call that needs nothing but to be passed on.

No task, no future and no timer of its own: a line is written, and when the answer comes, another.
Whatever is not plain (a connection to be opened, another era, progress, a queue) goes the long way
through `Relay.answer`, and so does a call that may be begun again after its upstream died.
"""

import asyncio
from collections.abc import Awaitable, Callable

from portico.model.errors import INTERNAL_ERROR, McpError, TargetError
from portico.model.message import Response
from portico.protocol.codec import error_response, mcp_error_response
from portico.protocol.eras import is_input_required, legacy_result, modern_result
from portico.state.pending import Pending
from portico.upstream.backoff import CircuitBreaker
from portico.upstream.caller import Call
from portico.upstream.concurrency_limiter import ConcurrencyLimiter
from portico.upstream.connection import UpstreamConnection
from portico.upstream.era_adapter import translate_error
from portico.upstream.pending_request import PendingRequest
from portico.upstream.rpc_error import ServerError
from portico.upstream.session import UpstreamSession

_ANSWERS = (bytes, ServerError)
Translate = Callable[[Call, UpstreamSession, bytes | ServerError], Response]
"""Makes a response of what the upstream answered."""
Retry = Callable[[Call, TargetError], Callable[[], Awaitable[Response]] | None]
"""How to begin a failed call again the long way, if that can do no harm."""


class DirectCall(PendingRequest, Pending):
    """One call under way; it is answered once, or cancelled."""

    __slots__ = (
        "_breaker",
        "_call",
        "_connection",
        "_id",
        "_is_over",
        "_limiter",
        "_reply",
        "_retry",
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
        retry: Retry,
        translate: Translate,
    ) -> None:
        self.method = call.request.method
        self.timeout = timeout
        self.progress = None
        self.is_done = False
        self._translate = translate
        self._call = call
        self._connection = connection
        self._session = session
        self._limiter = limiter
        self._breaker = breaker
        self._retry = retry
        self._id = b""
        self._is_over = False
        self._reply = self.response = None
        self.steps = ()
        self._task: asyncio.Task[None] | None = None

    def begin(self, params: bytes) -> bool:
        """Send the call; False if it must go the long way."""
        session, call = self._session, self._call
        id = session.exchange.begin(params, self)
        if not id:
            return False
        self._id = id
        session.calls[id] = call
        if call.caller.session is not None and call.caller is not session.latest:
            session.attach(call.caller)
        self._connection.begin()
        return True

    def cancel(self) -> None:
        """Drop the answer, and tell the upstream so if it has not come yet."""
        if self._task is not None:
            self._task.cancel()
        if not self._is_over:
            self._end(answered=False)
            self._session.exchange.cancel(self._id)
        super().cancel()

    def finished(self, outcome: bytes | Exception) -> None:
        """Reply with what came of it."""
        if self._is_over:
            return
        call = self._call
        if isinstance(outcome, _ANSWERS):
            self._end(answered=True)
            response = self._translate(call, self._session, outcome)
        else:
            assert isinstance(outcome, TargetError)
            self._breaker.call_failed(outcome, 0)  # after a failure calls go the long way
            if outcome.kind == "timeout":
                self._session.exchange.cancel(self._id)
            self._end(answered=False)
            retry = self._retry(call, outcome)
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
        except Exception:  # one of ours: whoever asked need not wait for ever
            self.arrived(error_response(self._call.request.id, INTERNAL_ERROR, "internal error"))
            raise
        self.arrived(response)


def as_mcp_error(error: TargetError) -> McpError:
    """A failure of ours or of the upstream's, as the answer to a call."""
    data = {"kind": error.kind, "server": error.server, **error.details}
    return McpError(str(error), data=data)


def unchanged(call: Call, session: UpstreamSession, outcome: bytes | ServerError) -> Response:
    """What an upstream of the client's own era answered."""
    id = call.request.id
    if isinstance(outcome, bytes):
        return Response(id=id, result=outcome)
    return Response(id=id, error=outcome.raw, code=outcome.code)


def from_legacy(call: Call, session: UpstreamSession, outcome: bytes | ServerError) -> Response:
    """What a legacy upstream answered, as a modern client gets it."""
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
    """What a modern upstream answered, as a legacy client gets it that cannot be asked."""
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
