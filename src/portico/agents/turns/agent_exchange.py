"""The messages of an agent: none is dropped unnoticed, and none is read while it does not read."""

from collections.abc import Callable

from portico.agents.turns.delegation import MAX_LINE
from portico.core.model.message import Response
from portico.upstream.rpc.exchange import Exchange
from portico.upstream.wires.child_wire import ChildWire

_LIMIT = f"{MAX_LINE >> 20} MB"


class AgentExchange(Exchange):
    """The requests of both sides over the pipes of an agent; reports messages over the limit.

    An agent that does not read our responses is not read either: whatever it requests meanwhile
    waits in its own pipe, not in our memory.
    """

    wire: ChildWire
    on_dropped: Callable[[str], None] | None = None
    """Called for each message that was dropped, with an event for the task."""
    _is_held = False

    def malformed(self, remains: bytes, why: str) -> None:
        """Report a message that was too long to read, and fail the request that it answers."""
        super().malformed(remains, f"sent a message over the limit of {_LIMIT}, which was dropped")
        is_message = remains.lstrip()[:1] in (b"{", b"[")  # and not a line of a log
        if is_message and self.on_dropped is not None:
            self.on_dropped(dropped_message(self.server))

    async def respond(self, response: Response) -> None:
        """Send a response; while it waits to be written, read nothing."""
        self._hold_while_blocked()
        await super().respond(response)
        self._hold_while_blocked()

    def refuse(self, response: Response) -> None:
        """Send the response to one request too many; reading pauses if that blocks."""
        self._background.start(self.respond(response))

    def _hold_while_blocked(self) -> None:
        if self.wire.is_blocked and not self._is_held:
            self._is_held = True
            self.wire.pause_reading()
            self._background.start(self._release())

    async def _release(self) -> None:
        try:
            while self.wire.is_blocked:
                await self.wire.drained()
        finally:
            self._is_held = False
            self.wire.resume_reading()


def dropped_message(agent: str) -> str:
    """Return the event of a message that was dropped."""
    return f"a message of {agent} exceeded the limit of {_LIMIT} and was dropped"
