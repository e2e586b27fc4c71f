"""The rule that ends a turn is one replaceable piece."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from portico.agents.turns.acp_connection import AcpConnection
from portico.agents.turns.turn import AcpTurn
from portico.agents.turns.turn_driver import TurnEnd
from tests.agents.turns.rig import FakePort, launch, prompt


class UpdateEndsTurn:
    """As in the draft of ACP v2: the response acknowledges the prompt, an update ends the turn."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[TurnEnd] = asyncio.get_running_loop().create_future()

    async def run(
        self, connection: AcpConnection, session_id: str, blocks: Sequence[Mapping[str, Any]]
    ) -> TurnEnd:
        await connection.prompt(session_id, blocks)
        return await self.ended

    def updated(self, session_id: str, update: Mapping[str, Any]) -> None:
        if update.get("sessionUpdate") == "state_update" and update.get("state") == "idle":
            self.ended.set_result(TurnEnd(update["stopReason"], update))


async def test_another_rule_ends_the_turn_by_an_update(tmp_path: Path) -> None:
    said = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "after"}}
    idle = {
        "sessionUpdate": "state_update",
        "state": "idle",
        "stopReason": "max_tokens",
        "usage": {"inputTokens": 5, "outputTokens": 6},
    }
    agent = launch({"stop": "end_turn", "late": [said, idle]})
    turn = AcpTurn(agent, prompt(tmp_path), FakePort(), driver=UpdateEndsTurn())
    outcome = await turn.run()
    assert (outcome.text, outcome.stop_reason) == ("after", "max_tokens")
    assert outcome.usage.tokens == 11
