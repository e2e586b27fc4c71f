"""The short way for a call that needs nothing but to be passed on.

No task, no future and no timer of its own: a line is written, and when the answer comes, another.
Whatever is not plain (a connection to be opened, another era, progress, a queue) goes the long way
through `Relay.answer`, and so does a call that may be begun again after its upstream died.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from portico.model.context import Context
from portico.model.errors import INTERNAL_ERROR, McpError, TargetError
from portico.model.message import Request, Response
from portico.protocol.codec import error_response
from portico.protocol.core import mcp_error_response
from portico.upstream.caller import Call
from portico.upstream.gate import Gate
from portico.upstream.leg import Leg
from portico.upstream.line import Line
from portico.upstream.patience import Breaker
from portico.upstream.pending import Pending
from portico.upstream.servererror import ServerError

_ANSWERS = (bytes, ServerError)
Reply = Callable[[Response], None]
Back = Callable[[Call, Leg, bytes | ServerError], Response]
"""Makes a response of what the upstream answered."""
Again = Callable[[Call, TargetError], Callable[[], Awaitable[Response]] | None]
"""How to begin a failed call again the long way, if that can do no harm."""


class Begun(Protocol):
    """A call on its short way."""

    def cancel(self) -> None:
        """Nobody wants the answer any more."""
        ...


class Express(Pending):
    """One call under way; it is answered once, or cancelled."""

    __slots__ = (
        "_again",
        "_back",
        "_breaker",
        "_call",
        "_gate",
        "_id",
        "_leg",
        "_line",
        "_reply",
        "_task",
    )

    def __init__(
        self,
        call: Call,
        timeout: float,
        line: Line,
        leg: Leg,
        gate: Gate,
        breaker: Breaker,
        again: Again,
        back: Back,
    ) -> None:
        self.method = call.request.method
        self.timeout = timeout
        self.progress = None
        self.is_done = False
        self._back = back
        self._call = call
        self._line = line
        self._leg = leg
        self._gate = gate
        self._breaker = breaker
        self._again = again
        self._id = b""
        self._reply: Reply | None = None
        self._task: asyncio.Task[None] | None = None

    def begin(self, params: bytes, reply: Reply) -> bool:
        """Send the call; False if it must go the long way."""
        leg, call = self._leg, self._call
        id = leg.exchange.begin(params, self)
        if not id:
            return False
        self._id = id
        self._reply = reply
        leg.calls[id] = call
        if call.caller is not leg.latest:
            leg.attach(call.caller)
        self._line.begin()
        return True

    def cancel(self) -> None:
        """Nobody wants the answer any more."""
        if self._task is not None:
            self._task.cancel()
        if self._reply is not None:
            self._reply = None
            self._over(answered=False)
            self._leg.exchange.take_back(self._id)

    def finished(self, outcome: bytes | Exception) -> None:
        """Reply with what came of it."""
        reply = self._reply
        if reply is None:
            return
        self._reply = None
        call = self._call
        if isinstance(outcome, _ANSWERS):
            self._over(answered=True)
            response = self._back(call, self._leg, outcome)
        else:
            assert isinstance(outcome, TargetError)
            self._breaker.failed_call(outcome, 0)  # after a failure calls go the long way
            if outcome.kind == "timeout":
                self._leg.exchange.take_back(self._id)
            self._over(answered=False)
            again = self._again(call, outcome)
            if again is not None:
                self._task = asyncio.create_task(self._repeat(again, reply))
                return
            response = mcp_error_response(call.request.id, failed(outcome))
        if call.is_quiet():
            reply(response)
        else:
            self._task = asyncio.create_task(self._flushed(response, reply))

    def _over(self, answered: bool) -> None:
        self._leg.calls.pop(self._id, None)
        self._gate.leave()
        self._line.end(answered)

    async def _flushed(self, response: Response, reply: Reply) -> None:
        await self._call.outbox.flush()
        reply(response)

    async def _repeat(self, again: Callable[[], Awaitable[Response]], reply: Reply) -> None:
        try:
            response = await again()
        except McpError as error:
            response = mcp_error_response(self._call.request.id, error)
        except TargetError as error:
            response = mcp_error_response(self._call.request.id, failed(error))
        except Exception:  # one of ours: whoever asked need not wait for ever
            reply(error_response(self._call.request.id, INTERNAL_ERROR, "internal error"))
            raise
        reply(response)


async def awaited(
    begin: Callable[[Request, Context, Reply], "Begun | None"], request: Request, context: Context
) -> Response | None:
    """The answer to a call by its short way; None if it has to go the long one."""
    answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

    def reply(response: Response) -> None:
        if not answer.done():  # it may be cancelled, and not know it yet
            answer.set_result(response)

    begun = begin(request, context, reply)
    if begun is None:
        return None
    try:
        return await answer
    except asyncio.CancelledError:
        begun.cancel()
        raise


def failed(error: TargetError) -> McpError:
    """A failure of ours or of the upstream's, as the answer to a call."""
    data = {"kind": error.kind, "server": error.server, **error.details}
    return McpError(str(error), data=data)
