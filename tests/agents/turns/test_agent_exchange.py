"""An agent that asks for much and reads nothing waits; it takes neither memory nor answers."""

import json
import tracemalloc
from pathlib import Path

import pytest

from portico.agents.turns.delegation import StopGrace
from portico.agents.turns.run_turn import run_turn
from portico.core.config.agents_schema import AgentCallbacks
from tests.agents.turns.rig import FakePort, launch, prompt

READS = AgentCallbacks(fs="read")
MB = 1024 * 1024
LIMIT = 60_000
"""The requests after which the agent believes that it is read for ever."""


@pytest.mark.parametrize("withdraws", [False, True])
async def test_a_flood_of_file_reads_is_read_no_faster_than_its_answers_are(
    tmp_path: Path, withdraws: bool
) -> None:
    path = tmp_path / "large.txt"
    path.write_text("x" * (2 * MB))
    params = {"sessionId": "session-1", "path": str(path)}
    flood = {"flood_requests": LIMIT, "method": "fs/read_text_file", "params": params}
    agent = launch({**flood, "withdraws": withdraws}, callbacks=READS, grace=StopGrace())
    tracemalloc.start(1)
    try:
        outcome = await run_turn(agent, prompt(tmp_path), FakePort())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    sent, results = json.loads(outcome.text)  # each of them was answered, if only with an error
    assert sent < LIMIT
    assert results > 0 or withdraws
    assert peak < 48 * MB
