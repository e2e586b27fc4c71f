"""The windows at an owner: each comes in through the control socket, or was there from the start.

After the owner's answer a connection is MCP as on stdio, a message a line. Some more lines are no
messages: `#last` from a window says that it sends no more requests, `#again` that all servers are
to be asked again. `#say` from the owner has words for the person at the window, and `#leave` asks
the window for its `#last`.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from portico.model.errors import PorticoError
from portico.protocol.codec import encode
from portico.state.background import first_of
from portico.transport.client_connection import Endpoint
from portico.transport.pipes import PipeReader, PipeWriter
from portico.transport.stdio import StdioServer
from portico.windows.control import Door, Order

ATTACH = "attach"
LAST, AGAIN, LEAVE, SAY = b"#last", b"#again", b"#leave", b"#say "
MAX_GUESTS = 256
_LAST_S = 5.0
"""How long a window may take to answer `#leave`."""
_MAX_SAID = 20
"""Of what was said before a window came."""

Wants = Mapping[str, Any]
"""How a client would like to be served."""
Doorway = Callable[[Wants], tuple[Endpoint, Wants]]
"""Who answers such a client, and what it is to want from the next owner, to be served the same."""


class ConnectedWindows:
    """All windows of one owner, from the first to the last."""

    def __init__(
        self, version: str, account: Callable[[], str], *, max_line: int, drain_s: float
    ) -> None:
        """`version` and `account` are ours; a window of others goes its own way."""
        self.version = version
        self._account = account
        self._doorway: Doorway | None = None
        self.max_line = max_line
        self.drain_s = drain_s
        self._here: set[_ConnectedWindow] = set()
        self._said: deque[str] = deque(maxlen=_MAX_SAID)
        self._leaving = False
        self._changed = asyncio.Event()
        self.ask_again: Callable[[], None] = lambda: None
        """Have all servers asked again for what they offer."""
        self.door = Door(self._open)

    def __len__(self) -> int:
        return len(self._here)

    def add(self, fd: int, order: Order) -> None:
        """Serve a window that has its connection already, and waits for our answer."""
        self._enter(_ConnectedWindow(fd, order, self, greets=True))

    def accept(self, doorway: Doorway) -> None:
        """Serve those who wait, and whoever comes."""
        self._doorway = doorway
        for window in tuple(self._here):
            window.serve(doorway)

    def say(self, words: str) -> None:
        """Tell the people at all windows."""
        self._said.append(words)
        for window in self._here:
            window.say(words)

    async def alone(self, for_s: float) -> None:
        """Wait until there has been no window for so long."""
        while True:
            self._changed.clear()
            if self._here:
                await self._changed.wait()
                continue
            try:
                async with asyncio.timeout(for_s):
                    await self._changed.wait()
            except TimeoutError:
                return

    async def leave(self) -> None:
        """Let nobody in any more, and wait until what runs for those who are here is done."""
        self._leaving = True
        if self._here:
            await asyncio.wait([asyncio.ensure_future(window.finish()) for window in self._here])

    async def close(self) -> None:
        """Hang up on whoever is left."""
        self._leaving = True
        while self._here:
            await self._here.pop().end()

    def _open(self, order: Order) -> tuple[dict[str, Any], Any]:
        if len(self._here) >= MAX_GUESTS:
            raise PorticoError(f"it has {MAX_GUESTS} clients already")
        # Who does not say whose it is takes what is there: a command, never a window.
        if "account" in order and order["account"] != self._account():
            return {"other": True}, os.close

        def take(fd: int) -> None:
            if self._leaving:
                os.close(fd)
            else:
                self._enter(_ConnectedWindow(fd, order, self))

        return self.answer(order, self._doorway), take

    def answer(self, order: Order, doorway: Doorway | None) -> dict[str, Any]:
        """What a window is told that is let in."""
        wants = wants_of(order)
        keeps = wants if doorway is None else doorway(wants)[1]
        return {"version": self.version, "keeps": keeps}

    def _enter(self, window: "_ConnectedWindow") -> None:
        self._here.add(window)
        self._changed.set()
        if self._doorway is not None:
            window.serve(self._doorway)

    def gone(self, window: "_ConnectedWindow") -> None:
        """This one is not here any more."""
        self._here.discard(window)
        self._changed.set()

    @property
    def said(self) -> list[str]:
        """The last things that people were told."""
        return list(self._said)


class _ConnectedWindow:
    """One window."""

    _server: "_WindowServer"

    def __init__(
        self, fd: int, order: Order, windows: ConnectedWindows, *, greets: bool = False
    ) -> None:
        self._fd = fd
        self._order = order
        self._windows = windows
        self._greets = greets
        self._last = asyncio.Event()
        self._over = asyncio.Event()
        self._work: asyncio.Task[None] | None = None

    def serve(self, doorway: Doorway) -> None:
        """Answer what it asks from now on; until then, it waits in the socket."""
        endpoint, _ = doorway(wants_of(self._order))
        self._writer = PipeWriter(self._fd)
        max_line = self._windows.max_line
        self._server = server = _WindowServer(endpoint, self._writer.write, max_line=max_line)
        server.last, server.windows = self._last, self._windows
        if turn := _turn(self._order):
            server.connection.question_prefix = f"portico.{turn}"
        self._reader = PipeReader(self._fd, server.received, self._over.set)
        self._writer.open(self, self._over.set)
        if self._greets:
            answer = {"ok": True, **self._windows.answer(self._order, doorway)}
            self._writer.write((encode(answer), b"\n"))
        self._work = asyncio.ensure_future(self._stay())
        for words in self._windows.said:
            self.say(words)
        self._reader.open()

    def say(self, words: str) -> None:
        """Tell the person at the window."""
        if self._work is not None:
            self._writer.write((SAY, encode(words), b"\n"))

    def pause(self) -> None:
        """Its client reads slowly: nothing more is taken from it, and handlers wait."""
        self._server.pause()
        self._reader.pause()

    def resume(self) -> None:
        """It has caught up."""
        self._server.resume()
        self._reader.resume()

    async def finish(self) -> None:
        """Answer what was asked, and hang up; what comes after `#last` is for the next owner."""
        if self._work is None:
            await self.end()
            return
        self._writer.write((LEAVE, b"\n"))
        await asyncio.wait(
            (asyncio.ensure_future(self._last.wait()), self._work),
            timeout=_LAST_S,
            return_when=asyncio.FIRST_COMPLETED,
        )
        self._last.set()
        await asyncio.wait((self._work,))

    async def end(self) -> None:
        """Hang up."""
        if self._work is None:
            os.close(self._fd)
            self._windows.gone(self)
            return
        self._over.set()
        await asyncio.wait((self._work,))

    async def _stay(self) -> None:
        """Serve until it has sent its last, then drain; or until it is gone, then cancel."""
        try:
            await first_of(self._last.wait(), self._over.wait())
            if not self._over.is_set():
                await first_of(self._server.drain(self._windows.drain_s), self._over.wait())
        finally:
            self._reader.close()
            self._server.disconnected()
            if self._over.is_set():
                self._writer.drop()
            await self._writer.close()
            self._windows.gone(self)


class _WindowServer(StdioServer):
    """Serves a window's client, and hears what the window itself has to say."""

    last: asyncio.Event
    windows: ConnectedWindows

    def receive_line(self, line: bytes | None) -> None:
        """Take in one line."""
        if line == LAST:
            self.last.set()
        elif line == AGAIN:
            self.windows.ask_again()
        else:
            super().receive_line(line)


def wants_of(order: Order) -> Wants:
    """How a client would like to be served."""
    wants = order.get("wants")
    return wants if isinstance(wants, dict) else {}


def _turn(order: Order) -> int:
    turn = order.get("turn")
    return turn if isinstance(turn, int) else 0
