"""The slots of agents, and the prompts that wait for one, in order."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from portico.agents.routing.routing import Routing, RoutingRequest

_MAX_WAITING = 100
"""Tasks that wait for a busy agent outside of the queue, so that those of others can start."""
Admit = Callable[[RoutingRequest], Awaitable[Routing]]
Refund = Callable[[Routing], Awaitable[None]]


class _Waiting:
    """One prompt in the queue."""

    def __init__(self, request: RoutingRequest) -> None:
        self.request = request
        self.chosen: asyncio.Future[Routing] = asyncio.get_running_loop().create_future()
        self.busy = ""
        """The agent that it waits for; empty if it waits for any slot."""

    @property
    def reason(self) -> str:
        """Why it waits."""
        return f"waiting for {self.busy}: it is busy" if self.busy else "waiting for other tasks"


class AgentSlots:
    """Admits prompts in the order of their arrival; a waiting prompt does not hold up those
    behind it that can start."""

    def __init__(self, admit: Admit, refund: Refund, limit: Callable[[], int]) -> None:
        """`admit` chooses the agent of a prompt, and counts it; `refund` is for a prompt that
        does not start after all. `limit` is that of all agents together."""
        self.running: Counter[str] = Counter()
        """The prompts in progress, by agent."""
        self.admitted = 0
        """The number of prompts that were admitted so far."""
        self._admit = admit
        self._refund = refund
        self._limit = limit
        self._queue: list[_Waiting] = []
        self._lock = asyncio.Lock()

    def claimable(self) -> int:
        """Return the number of tasks to take from the queue; tasks of busy agents use no slot."""
        return self._limit() + min(sum(bool(one.busy) for one in self._queue), _MAX_WAITING)

    @asynccontextmanager
    async def taken(
        self, request: RoutingRequest, wait: Callable[[str], Awaitable[Any]]
    ) -> AsyncGenerator[Routing, None]:
        """Wait for a slot, and hold it. `wait` is awaited with the reason if there is none."""
        chosen = await self._slot(request, wait)
        try:
            yield chosen
        finally:
            await self._free(chosen)

    async def _slot(
        self, request: RoutingRequest, wait: Callable[[str], Awaitable[Any]]
    ) -> Routing:
        waiting = _Waiting(request)
        self._queue.append(waiting)
        try:
            await self._advance()
            if not waiting.chosen.done():
                await wait(waiting.reason)
            return await waiting.chosen
        except BaseException:
            if waiting in self._queue:
                self._queue.remove(waiting)
            elif not waiting.chosen.cancelled() and waiting.chosen.exception() is None:
                chosen = waiting.chosen.result()
                await self._refund(chosen)
                await self._free(chosen)
            raise

    async def _free(self, chosen: Routing) -> None:
        if chosen.agent:
            self.running[chosen.agent] -= 1
        await self._advance()

    async def _advance(self) -> None:
        """Admit prompts even if the caller is cancelled: other callers may wait for theirs."""
        await asyncio.shield(asyncio.ensure_future(self.advance()))

    async def advance(self) -> None:
        """Admit all prompts that can start now."""
        async with self._lock:
            for waiting in tuple(self._queue):
                if self.running.total() >= self._limit():
                    break
                try:
                    chosen = await self._admit(waiting.request)
                except Exception as error:  # noqa: BLE001  (it is that of this prompt alone)
                    self._leave(waiting).set_exception(error)
                    continue
                if chosen.waits:
                    waiting.busy = chosen.agent
                elif waiting in self._queue:
                    self._take(waiting, chosen)
                else:  # it was cancelled meanwhile
                    await self._refund(chosen)

    def _take(self, waiting: _Waiting, chosen: Routing) -> None:
        self.admitted += 1
        if chosen.agent:
            self.running[chosen.agent] += 1
        self._leave(waiting).set_result(chosen)

    def _leave(self, waiting: _Waiting) -> "asyncio.Future[Routing]":
        if waiting in self._queue:
            self._queue.remove(waiting)
        return waiting.chosen
