"""The servers of one Portico that are being installed: few at a time, and not interrupted."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

AT_ONCE = 2
"""Installers slow each other down, and share a cache."""
INSTALLING, WAITING = "installing", "waiting to install"
"""The states of a server that is being installed, or whose turn has not come yet."""


class Installs:
    """The turns of installers."""

    def __init__(self) -> None:
        self.over = asyncio.Event()
        """Set once installers may be interrupted, because Portico has to end."""
        self._is_held = False
        self._running: list[str] = []
        self._waiting: list[tuple[str, asyncio.Future[None]]] = []

    @contextlib.asynccontextmanager
    async def turn(self, package: str) -> AsyncGenerator[None, None]:
        """Wait for a turn, and have it. Two installers of one package do not run together: older
        ones damage each other's files."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        place = (package, turn)
        self._waiting.append(place)
        self._admit()
        try:
            await turn
            yield
        finally:
            if place in self._waiting:
                self._waiting.remove(place)
            else:
                self._running.remove(package)
            self._admit()

    def hold(self) -> None:
        """Give no more turns until `resume`."""
        self._is_held = True

    def resume(self) -> None:
        """Give turns again."""
        self._is_held = False
        self._admit()

    def _admit(self) -> None:
        """Give turns to those that have waited longest."""
        for place in tuple(self._waiting):
            package, turn = place
            if self._is_held or len(self._running) >= AT_ONCE:
                return
            if package not in self._running and not turn.done():
                self._waiting.remove(place)
                self._running.append(package)
                turn.set_result(None)

    def end_in(self, seconds: float) -> None:
        """Give no more turns, and allow those that run to be interrupted after this time."""
        self.hold()
        asyncio.get_running_loop().call_later(seconds, self.over.set)
