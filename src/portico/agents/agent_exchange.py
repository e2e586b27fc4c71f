"""The messages of an agent, of which none is dropped unnoticed."""

from collections.abc import Callable

from portico.agents.delegation import MAX_LINE
from portico.upstream.exchange import Exchange

_LIMIT = f"{MAX_LINE >> 20} MB"


class AgentExchange(Exchange):
    """The requests of both sides over the pipes of an agent; reports messages over the limit."""

    on_dropped: Callable[[str], None] | None = None
    """Called for each message that was dropped, with an event for the task."""

    def malformed(self, remains: bytes, why: str) -> None:
        """Report a message that was too long to read, and fail the request that it answers."""
        super().malformed(remains, f"sent a message over the limit of {_LIMIT}, which was dropped")
        is_message = remains.lstrip()[:1] in (b"{", b"[")  # and not a line of a log
        if is_message and self.on_dropped is not None:
            self.on_dropped(dropped_message(self.server))


def dropped_message(agent: str) -> str:
    """Return the event of a message that was dropped."""
    return f"a message of {agent} exceeded the limit of {_LIMIT} and was dropped"
