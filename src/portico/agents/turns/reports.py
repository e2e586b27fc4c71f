"""Passes progress and events of a turn on to its port, without ever delaying the agent."""

import asyncio
from collections import deque
from collections.abc import Callable

from portico.agents.turns.delegation import DelegationPort

MAX_RECORDS = 1000
"""Events that may wait for the port; further ones are dropped and counted."""


class TurnReports:
    """A queue of events and the latest progress, written by a task of its own."""

    def __init__(self, port: DelegationPort, on_error: Callable[[Exception], None]) -> None:
        self._port = port
        self._on_error = on_error
        self._records: deque[str] = deque()
        self._dropped = 0
        self._progress = ""
        self._shown = ""
        self._pending = asyncio.Event()
        self._closing = False
        self._writer: asyncio.Task[None] | None = None

    def progress(self, text: str) -> None:
        """Show what the agent is doing; replaces a text that was not shown yet."""
        self._progress = text
        self._wake()

    def record(self, text: str) -> None:
        """Keep an event."""
        if len(self._records) < MAX_RECORDS:
            self._records.append(text)
        else:
            self._dropped += 1
        self._wake()

    async def close(self, within_s: float) -> None:
        """Write what is left, within a time."""
        self._closing = True
        if self._writer is not None:
            self._pending.set()
            try:
                await asyncio.wait((self._writer,), timeout=within_s)
            finally:
                self._writer.cancel()

    def _wake(self) -> None:
        self._pending.set()
        if self._writer is None and not self._closing:
            self._writer = asyncio.create_task(self._write())

    async def _write(self) -> None:
        try:
            while True:
                await self._pending.wait()
                self._pending.clear()
                await self._flush()
                if self._closing and not self._pending.is_set():
                    return
        except Exception as error:  # noqa: BLE001  (the owner's failure ends the turn, whatever it is)
            self._on_error(error)

    async def _flush(self) -> None:
        while self._records:
            await self._port.record(self._records.popleft())
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            await self._port.record(f"{dropped} further events were dropped")
        if self._progress != self._shown:
            self._shown = self._progress
            await self._port.progress(self._shown)
