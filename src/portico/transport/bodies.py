"""Reads request bodies within limits of time and size and a shared memory budget."""

import asyncio
from typing import Any

from portico.http1.memory_budget import SMALL, Allotment, MemoryBudget
from portico.state.memory import map_large_blocks_apart
from portico.transport.asgi import (
    CLOSE,
    JSON_TYPE,
    ON_DISCONNECT,
    RETRY_AFTER,
    Receive,
    Reply,
    Scope,
    busy,
    refusal,
    too_large,
)
from portico.transport.http_limits import HttpLimits

_ALLOTMENT = "portico.body"
"""The scope key for the body's allotment of the memory budget."""
_OUT_OF_MEMORY = Reply(
    503,
    busy(b"", "the memory for request bodies is full").encode(),
    (JSON_TYPE, RETRY_AFTER, CLOSE),
    lingers=True,
)
_TOO_SLOW = refusal(408, "the body arrived too slowly: other requests needed its memory", CLOSE)


class BodyReader:
    """Reads bodies, with one timer for all of them.

    A timer per request would be the most expensive part of a request whose body is already there.
    """

    def __init__(self, limits: HttpLimits, budget: MemoryBudget) -> None:
        self._limits = limits
        self._budget = budget
        self._since: dict[asyncio.Task[Any], float] = {}
        self._stopped: dict[asyncio.Task[Any], Reply] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def read(self, scope: Scope, receive: Receive) -> bytes | Reply | None:
        """Return the body, which takes memory until `release`, or a refusal; None if the client
        disconnected."""
        task = asyncio.current_task()
        assert task is not None
        if ON_DISCONNECT not in scope:  # our own server has timeouts of its own
            loop = asyncio.get_running_loop()
            self._since[task] = loop.time()
            if self._timer is None:
                self._timer = loop.call_later(self._limits.body_s, self._check, loop)
        try:
            return await self._read_all(scope, receive, task)
        except asyncio.CancelledError:
            why = self._stopped.get(task)
            if why is None or task.uncancel():
                raise
            return why
        finally:
            self._since.pop(task, None)
            self._stopped.pop(task, None)

    def release(self, scope: Scope) -> None:
        """Return the memory of a request's body to the budget."""
        allotment: Allotment | None = scope.pop(_ALLOTMENT, None)
        if allotment is not None:
            self._budget.close(allotment)

    async def _read_all(
        self, scope: Scope, receive: Receive, task: asyncio.Task[Any]
    ) -> bytes | Reply | None:
        message = await receive()
        if message["type"] != "http.request":
            return None
        first: bytes = message.get("body", b"")
        if not message.get("more_body") and len(first) <= SMALL:
            return first if len(first) <= self._limits.body_bytes else too_large(self._limits)
        map_large_blocks_apart()
        body = bytearray()
        allotment = scope[_ALLOTMENT] = self._budget.open(lambda: self._stop(task, _TOO_SLOW))
        while message["type"] == "http.request":
            piece = message.get("body", b"")
            if len(body) + len(piece) > self._limits.body_bytes:
                return too_large(self._limits)
            if not self._budget.take(allotment, len(piece)):
                return _OUT_OF_MEMORY
            body += piece
            if not message.get("more_body"):
                allotment.drop = None
                return bytes(body)
            message = await receive()
        return None

    def _stop(self, task: asyncio.Task[Any], why: Reply) -> None:
        if task not in self._stopped:
            self._stopped[task] = why
            task.cancel()

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        """Stop the bodies that have timed out, and set the timer for the next one."""
        self._timer = None
        now = loop.time()
        for task, since in self._since.items():
            due = since + self._limits.body_s - now
            if due > 0:
                self._timer = loop.call_later(due, self._check, loop)
                break  # all others began later
            why = f"the body did not arrive within {self._limits.body_s:g} s"
            self._stop(task, refusal(408, why, CLOSE))
