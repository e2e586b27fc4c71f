"""The rule by which a turn ends, which differs between versions of ACP."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from portico.agents.turns.acp_connection import AcpConnection
from portico.agents.turns.lenient import short


class TurnEnd(Struct, frozen=True):
    """How an agent ended a turn."""

    stop_reason: str
    result: Mapping[str, Any]
    """The message that ended it, which may report usage."""


class TurnDriver(Protocol):
    """Sends the prompt, and recognises the end of the turn."""

    async def run(
        self, connection: AcpConnection, session_id: str, blocks: Sequence[Mapping[str, Any]]
    ) -> TurnEnd:
        """Return at the end of the turn; raises McpError or TargetError."""
        ...

    def updated(self, session_id: str, update: Mapping[str, Any]) -> None:
        """An update arrived, which may end the turn."""
        ...


class ResponseEndsTurn:
    """ACP v1: the response to the prompt ends the turn.

    In v2 it only acknowledges the prompt, and an update ends the turn.
    """

    async def run(
        self, connection: AcpConnection, session_id: str, blocks: Sequence[Mapping[str, Any]]
    ) -> TurnEnd:
        """Return with the response to the prompt."""
        result = await connection.prompt(session_id, blocks)
        return TurnEnd(short(result.get("stopReason"), 60) or "end_turn", result)

    def updated(self, session_id: str, update: Mapping[str, Any]) -> None:
        """No update ends the turn."""
