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
TakeBack = Callable[[Routing], Awaitable[None]]


class _Place:
    """One prompt in the line."""

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

    def __init__(self, admit: Admit, take_back: TakeBack, limit: Callable[[], int]) -> None:
        """`admit` chooses the agent of a prompt, and counts it; `take_back` is for a prompt that
        does not start after all. `limit` is that of all agents together."""
        self.running: Counter[str] = Counter()
        """The prompts in progress, by agent."""
        self.admitted = 0
        """The number of prompts that were admitted so far."""
        self._admit = admit
        self._take_back = take_back
        self._limit = limit
        self._line: list[_Place] = []
        self._lock = asyncio.Lock()

    def claimable(self) -> int:
        """Return the number of tasks to take from the queue; tasks of busy agents use no slot."""
        return self._limit() + min(sum(bool(one.busy) for one in self._line), _MAX_WAITING)

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
        place = _Place(request)
        self._line.append(place)
        try:
            await self._advance()
            if not place.chosen.done():
                await wait(place.reason)
            return await place.chosen
        except BaseException:
            if place in self._line:
                self._line.remove(place)
            elif not place.chosen.cancelled() and place.chosen.exception() is None:
                chosen = place.chosen.result()
                await self._take_back(chosen)
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
            for place in tuple(self._line):
                if self.running.total() >= self._limit():
                    break
                try:
                    chosen = await self._admit(place.request)
                except Exception as error:  # noqa: BLE001  (it is that of this prompt alone)
                    self._leave(place).set_exception(error)
                    continue
                if chosen.waits:
                    place.busy = chosen.agent
                elif place in self._line:
                    self._take(place, chosen)
                else:  # it was cancelled meanwhile
                    await self._take_back(chosen)

    def _take(self, place: _Place, chosen: Routing) -> None:
        self.admitted += 1
        if chosen.agent:
            self.running[chosen.agent] += 1
        self._leave(place).set_result(chosen)

    def _leave(self, place: _Place) -> "asyncio.Future[Routing]":
        if place in self._line:
            self._line.remove(place)
        return place.chosen
