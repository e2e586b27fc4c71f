"""Calls suspended at a legacy upstream while a modern client gathers the answers.

A legacy server sends a question as a request in the middle of a call; a modern client receives it
in the call's result, and answers with a new request. In between the call is suspended here for a
limited time, under a sealed state that only its own client can return.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import Raw, Struct

from portico.core.model.context import Context
from portico.core.model.errors import AskError, InvalidParams, TargetError
from portico.core.model.message import Request
from portico.core.protocol.codec import encode
from portico.core.protocol.eras import modern_question
from portico.core.state.sealed_states import SealedStates
from portico.upstream.connections.caller import Call, Caller

_GATHER_S = 0.02
"""Questions that arrive within this time are sent in one round."""


class _Retry(Struct):
    inputResponses: dict[str, Raw] = {}  # noqa: N815  (fields of the wire)
    requestState: str = ""  # noqa: N815


class OpenQuestions(Struct, frozen=True):
    """The questions that the client must answer before the call continues, by key."""

    by_key: dict[str, dict[str, Any]]


class SuspendedCall(Call):
    """A modern client's call at a legacy upstream, which lasts over several requests."""

    def __init__(self, caller: Caller, request: Request, context: Context) -> None:
        super().__init__(caller, request, context)
        self._open: dict[str, tuple[dict[str, Any], asyncio.Future[bytes]]] = {}
        self._last_number = 0
        self._changed = asyncio.Event()
        self._work: asyncio.Task[bytes] | None = None

    def start(self, work: Awaitable[bytes]) -> None:
        """Begin the call itself, which keeps running between the client's requests."""
        self._work = asyncio.ensure_future(work)
        self._work.add_done_callback(lambda _: self._changed.set())

    async def next(self) -> bytes | OpenQuestions:
        """Return the result or the open questions; raises the error of the call."""
        work = self._work
        assert work is not None
        try:
            while not work.done() and not self._open and self.missing is None:
                self._changed.clear()
                await self._changed.wait()
            if self._open and not work.done():
                await asyncio.sleep(_GATHER_S)
            # Inside the try: a client that disconnects during the flush also ends the call.
            await self.outbox.flush()
        except asyncio.CancelledError:
            self.cancel()
            raise
        if self.missing is not None:
            self.cancel()
            raise self.missing
        if work.done():
            return work.result()
        return OpenQuestions({key: question for key, (question, _) in self._open.items()})

    def resume(self, request: Request, context: Context, answers: dict[str, Raw]) -> None:
        """Continue with the client's answers; unanswered questions are sent again."""
        self.request, self.context = request, context
        self.outbox.peer = context.peer
        for key, answer in answers.items():
            question = self._open.pop(key, None)
            if question is not None and not question[1].done():
                question[1].set_result(bytes(answer))

    async def ask(self, method: str, params: bytes) -> bytes:
        """Put a question into the next result, and wait for the request that answers it."""
        self._last_number += 1
        key = f"{method.partition('/')[0]}-{self._last_number}"
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        decoded = msgspec.json.decode(params or b"{}", type=dict[str, Any])
        question = {"method": method, "params": modern_question(method, decoded)}
        self._open[key] = (question, answer)
        self._changed.set()
        try:
            return await answer
        finally:
            self._open.pop(key, None)

    def require_capability(self, capability: str, part: str) -> None:
        """End the call as a modern server does: the client must declare this first."""
        super().require_capability(capability, part)
        self._changed.set()

    def cancel(self) -> None:
        """Cancel the call and its open questions."""
        if self._work is not None:
            self._work.cancel()
        for _, answer in self._open.values():
            if not answer.done():
                answer.set_exception(AskError("the client did not return its answer"))
                answer.exception()


class SuspendedCalls:
    """All suspended calls of one upstream, each for a limited time."""

    def __init__(
        self, ttl_s: float, max_calls: int, server: str, clock: Callable[[], float] = time.time
    ) -> None:
        self._ttl_s = ttl_s
        self._max_calls = max_calls
        self._server = server
        self._states = SealedStates(os.urandom(32), clock, ttl_s)
        self._calls: dict[str, tuple[SuspendedCall, asyncio.TimerHandle]] = {}

    def __len__(self) -> int:
        return len(self._calls)

    async def suspend(self, call: SuspendedCall, questions: OpenQuestions) -> bytes:
        """Return the result with the questions, whose state leads back to this call."""
        if len(self._calls) >= self._max_calls:
            call.cancel()
            why = f"{self._server}: suspended call limit reached ({self._max_calls})"
            raise TargetError(why, kind="busy", server=self._server)
        key = os.urandom(12).hex()
        timer = asyncio.get_running_loop().call_later(self._ttl_s, self._expire, key)
        self._calls[key] = (call, timer)
        try:
            state = await self._states.close(key, call.request, call.context.principal)
        except asyncio.CancelledError:  # the client has left, and cannot answer
            self._expire(key)
            raise
        fields = {"inputRequests": questions.by_key, "requestState": state}
        return encode({"resultType": "input_required", **fields})

    async def resume(self, request: Request, context: Context) -> SuspendedCall | None:
        """Return the call that a request continues; None if it begins a new one."""
        retry = request.decode_as(_Retry)
        if not retry.requestState:
            return None
        key = await self._states.open(retry.requestState, request, context.principal)
        suspended = self._calls.pop(key, None)
        if suspended is None:
            raise InvalidParams("requestState was used already, or its call has ended; start over")
        call, timer = suspended
        timer.cancel()
        call.resume(request, context, retry.inputResponses)
        return call

    def close(self) -> None:
        """Cancel all calls."""
        for key in tuple(self._calls):
            self._expire(key)

    def _expire(self, key: str) -> None:
        suspended = self._calls.pop(key, None)
        if suspended is not None:
            suspended[1].cancel()
            suspended[0].cancel()
