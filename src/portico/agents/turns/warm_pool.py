"""Warm processes of one agent: started and initialized, without a session.

A session belongs to a folder, so only the start of the process can happen in advance. Many agents
read settings from the folder in which they are started: a process is for tasks in that folder.
"""

import asyncio
from collections import deque
from contextlib import suppress
from typing import NamedTuple

from msgspec import Struct

from portico.agents.turns.acp_connection import AcpConnection
from portico.agents.turns.delegation import AgentLaunch
from portico.core.config.agents_schema import AgentPool
from portico.core.model.errors import McpError, TargetError
from portico.core.state.background import Background
from portico.core.state.files import make_private

_FIRST_PAUSE_S, _MAX_PAUSE_S = 1.0, 300.0
"""The pauses between failed starts."""


class PoolStatus(Struct, frozen=True, kw_only=True):
    """The state of a pool."""

    ready: int
    hits: int
    misses: int
    failures: int
    """The processes that failed since the last hit, up to 100."""
    problem: str
    """Why the last process failed; empty since the last hit."""


class _WarmProcess(NamedTuple):
    connection: AcpConnection
    folder: str
    born: float


class WarmPool:
    """Keeps up to `max` processes after the first use, and `min` at all times."""

    def __init__(self, launch: AgentLaunch, limits: AgentPool, home: str) -> None:
        """`home` is the folder of processes that are started before the first task: they are for
        tasks in any folder."""
        self._launch = launch
        self._limits = limits
        self._home = self._folder = home
        self._ready: deque[_WarmProcess] = deque()
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

    def take(self, folder: str) -> AcpConnection | None:
        """Return a process for a task in this folder, which is the caller's from now on; None if
        none is ready. The next processes are for the same folder."""
        self._drop_stale()
        self._is_used = True
        self._folder = folder
        self.start()
        self._wake.set()
        found = next((one for one in self._ready if one.folder in (folder, self._home)), None)
        if found is None:
            self._misses += 1
            if self._ready and len(self._ready) >= self._limits.max:  # for other folders
                self._end(self._ready.popleft().connection)
            return None
        self._hits += 1
        self._problem, self._failures = "", 0
        self._ready.remove(found)
        found.connection.exchange.on_lost = None
        return found.connection

    async def close(self) -> None:
        """End all processes."""
        self._closed = True
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait((self._keeper,))
        while self._ready:
            self._end(self._ready.popleft().connection)
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
            due = [one.born + self._limits.max_age_s for one in self._ready]
            if len(self._ready) < self._target():
                due.append(self._rest_until)
            await self._wait_until(min(due, default=None))

    async def _add(self) -> bool:
        folder = self._folder
        try:
            if folder == self._home:
                make_private(folder)
            connection = AcpConnection(self._launch, folder)
            await connection.open()
        except (McpError, TargetError, OSError) as error:
            self._failed(str(error))
            return False
        connection.exchange.on_lost = lambda _: self._wake.set()
        self._ready.append(_WarmProcess(connection, folder, self._loop.time()))
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
            connection, born = one.connection, one.born
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
