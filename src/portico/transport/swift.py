"""A modern call answered straight from and to its connection, without a task or ASGI's messages."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from portico.model.errors import AskError
from portico.model.message import Response
from portico.state.pending import Pending, Running
from portico.transport.asgi import Receive, Scope, Send
from portico.transport.connection import reply_with, stopped
from portico.transport.events import EVENT_STREAM, Pulse, event
from portico.transport.limits import Load
from portico.transport.modern import STATUS

_OPEN, _RESULT = b'{"jsonrpc":"2.0","id":', b',"result":'
_COMMENT = b":\n\n"
_STREAM = b"".join(b"%b: %b\r\n" % header for header in EVENT_STREAM)

App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Underway(Protocol):
    """A call under way, as the connection sees it."""

    def gone(self) -> None:
        """The client has left."""
        ...


class Line(Protocol):
    """The connection, as a call sees it."""

    call: "Underway | None"
    """The call that it is answered by."""

    def begin_stream(self, headers: bytes) -> None:
        """Write the head of a response in chunks."""
        ...

    def say(self, chunk: bytes, *, last: bool = False) -> None:
        """Write a chunk."""
        ...

    def answer(self, status: int, parts: tuple[bytes, ...]) -> None:
        """Write a whole response."""
        ...

    async def room(self) -> None:
        """Wait while the reader is slow."""
        ...

    def hand_over(self, app: App) -> Send:
        """Let this app respond in the usual way, from now on; where it will send to."""
        ...


class Swift:
    """One call under way, and the way back to its asker."""

    def __init__(self, line: Line, id: bytes, load: Load, pulse: Pulse) -> None:
        self._running: Running | None = None
        self._line = line
        self._id = id
        self._load = load
        self._slot = next(pulse.slots)
        self._slot.add(self)
        if pulse.timer is None:
            pulse.begin()
        self._streams = False
        self._quiet = False
        self._over = False

    def run(self, answer: Awaitable[Response]) -> None:
        """Reply with this answer when it arrives."""
        self._load.tasks.add(self)
        if isinstance(answer, Pending):
            answer.then(self.reply)
            running: Running = answer
        else:
            running = reply_with(answer, self.reply)
        self._running = None if self._over else running

    def drop(self) -> None:
        """It is answered already, or cannot be: take no place any more."""
        self._end()

    # The peer, as an endpoint knows it.

    async def notify(self, message: bytes) -> None:
        """Send a notification; waits while the reader is slow."""
        await self._line.room()
        self._say(event(message))

    async def ask(self, method: str, params: bytes) -> bytes:
        """Refuse: "the server MUST NOT send independent JSON-RPC requests on this stream"."""
        raise AskError(f"{method}: a modern client is asked by an input_required result")

    async def closed(self) -> None:
        """Wait until we drain; if the client leaves first, its call is cancelled."""
        await self._load.drain_began.wait()

    def reply(self, response: Response) -> None:
        """Answer: as JSON, or as an event if this is a stream by now."""
        if self._over:
            return
        self._end()
        if self._streams:
            self._line.say(event(response.encode()), last=True)
        else:
            result = response.result
            parts = (_OPEN, response.id, _RESULT, result, b"}") if result else response.parts
            self._line.answer(STATUS.get(response.code, 200), parts)

    def gone(self) -> None:
        """The client has left, which cancels the call."""
        if not self._over:
            running = self._running
            self._end()
            if running is not None:
                running.cancel()

    def cancel(self) -> None:
        """The server stops, and cannot wait any longer."""
        if self._running is not None:
            self._running.cancel()
        self.reply(stopped(self._id))

    def beat(self, loop: asyncio.AbstractEventLoop) -> None:
        """Say nothing, audibly, if nothing was said since the last beat."""
        if self._quiet:
            self._say(_COMMENT)
        self._quiet = not self._quiet

    def _say(self, frame: bytes) -> None:
        if self._over:
            return
        if not self._streams:
            self._streams = True
            self._line.begin_stream(_STREAM)
        self._quiet = False
        self._line.say(frame)

    def _end(self) -> None:
        self._over = True
        self._running = None  # else the two would hold each other
        self._slot.discard(self)
        self._load.tasks.discard(self)
        self._load.calls -= 1
        if self._load.at_rest is not None:
            self._load.look()
