"""Warm processes of one agent: started and initialized, without a session.

A session belongs to a folder, so only the start of the process can happen in advance.
"""

import asyncio
import os
from collections import deque
from contextlib import suppress

from msgspec import Struct

from portico.agents.acp_connection import AcpConnection
from portico.agents.delegation import AgentLaunch
from portico.config.agents_schema import AgentPool
from portico.model.errors import McpError, TargetError
from portico.state.background import Background

_FIRST_PAUSE_S, _MAX_PAUSE_S = 1.0, 300.0
"""The pauses between failed starts."""
_HOME = os.path.expanduser("~")
"""Their folder, if the agent has none: that of a task is known only with its session."""


class PoolStatus(Struct, frozen=True, kw_only=True):
    """The state of a pool."""

    ready: int
    hits: int
    misses: int
    failures: int
    """The processes that failed since the last hit, up to 100."""
    problem: str
    """Why the last process failed; empty since the last hit."""


class WarmPool:
    """Keeps up to `max` processes after the first use, and `min` at all times."""

    def __init__(self, launch: AgentLaunch, limits: AgentPool) -> None:
        self._launch = launch
        self._limits = limits
        self._ready: deque[tuple[AcpConnection, float]] = deque()
        self._is_used = False
        self._hits = self._misses = self._failures = 0
        self._problem = ""
        self._rest_until = 0.0
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._endings = Background()
        self._keeper: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def status(self) -> PoolStatus:
        """Its state."""
        return PoolStatus(
            ready=len(self._ready),
            hits=self._hits,
            misses=self._misses,
            failures=self._failures,
            problem=self._problem,
        )

    def start(self) -> None:
        """Start the processes that are kept at all times, in the background."""
        if self._target() and self._keeper is None and not self._closed:
            self._keeper = asyncio.create_task(self._keep())

    def take(self) -> AcpConnection | None:
        """Return a process, which is the caller's from now on; None if none is ready."""
        self._drop_stale()
        self._is_used = True
        self.start()
        self._wake.set()
        if not self._ready:
            self._misses += 1
            return None
        self._hits += 1
        self._problem, self._failures = "", 0
        connection, _ = self._ready.popleft()
        connection.exchange.on_lost = None
        return connection

    async def close(self) -> None:
        """End all processes."""
        self._closed = True
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait((self._keeper,))
        while self._ready:
            self._end(self._ready.popleft()[0])
        await self._endings.wait()

    def _target(self) -> int:
        """The number of processes to keep: more than the minimum only if they are in use."""
        return self._limits.max if self._is_used else min(self._limits.min, self._limits.max)

    async def _keep(self) -> None:
        while True:
            self._drop_stale()
            is_short = len(self._ready) < self._target()
            if is_short and self._loop.time() >= self._rest_until and await self._add():
                continue
            due = [born + self._limits.max_age_s for _, born in self._ready]
            if len(self._ready) < self._target():
                due.append(self._rest_until)
            await self._wait_until(min(due, default=None))

    async def _add(self) -> bool:
        connection = AcpConnection(self._launch, _HOME)
        try:
            await connection.open()
        except (McpError, TargetError) as error:
            self._failed(str(error))
            return False
        connection.exchange.on_lost = lambda _: self._wake.set()
        self._ready.append((connection, self._loop.time()))
        return True

    def _failed(self, why: str) -> None:
        """Pause; only the minimum is then tried again without a further use."""
        self._problem = why
        pause_s = min(_FIRST_PAUSE_S * 2.0**self._failures, _MAX_PAUSE_S)
        self._rest_until = self._loop.time() + pause_s
        self._failures = min(self._failures + 1, 100)
        self._is_used = False

    async def _wait_until(self, when: float | None) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout_at(when):
                await self._wake.wait()
        self._wake.clear()

    def _drop_stale(self) -> None:
        """Drop processes that have died, or are too old; old ones were not used for a while."""
        oldest = self._loop.time() - self._limits.max_age_s
        for one in tuple(self._ready):
            connection, born = one
            if connection.is_over:
                failure = connection.exchange.failure
                self._failed(str(failure.error()) if failure is not None else "was closed")
            elif born <= oldest:
                self._is_used = False
            else:
                continue
            self._ready.remove(one)
            self._end(connection)

    def _end(self, connection: AcpConnection) -> None:
        self._endings.start(connection.close())
