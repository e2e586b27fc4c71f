"""Delegations to an agent on the official Python SDK, as an independent peer."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from portico.agents.turns.delegation import AgentLaunch, TurnOutcome
from portico.agents.turns.run_turn import run_turn, turn_of
from portico.core.config.agents_schema import AgentCallbacks, AgentPermissions
from tests.agents.turns.rig import FakePort, accept, prompt
from tests.support.backoff import until

SCRIPT = Path(__file__).parent / "sdk_agent.py"


def sdk_agent(**options: Any) -> AgentLaunch:
    return AgentLaunch(name="sdk", argv=(sys.executable, str(SCRIPT)), **options)


async def said(folder: Path, text: str, port: FakePort | None = None, **options: Any) -> str:
    """The text of a turn."""
    outcome = await run_turn(sdk_agent(**options), prompt(folder, text), port or FakePort())
    assert (outcome.stop_reason, outcome.error) == ("end_turn", "")
    return outcome.text


async def test_it_answers_a_prompt(tmp_path: Path) -> None:
    assert await said(tmp_path, "echo hello there") == "hello there"


@pytest.mark.parametrize(
    ("policy", "option"),
    [
        (AgentPermissions(allow=("edit",)), "once"),
        (AgentPermissions(deny=("edit",)), "no"),
        (AgentPermissions(), "once"),
    ],
)
async def test_its_permissions_are_answered(
    tmp_path: Path, policy: AgentPermissions, option: str
) -> None:
    text = await said(tmp_path, "permit", FakePort(accept("yes")), permissions=policy)
    assert json.loads(text)["optionId"] == option


async def test_it_reads_and_writes_files(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    text = await said(tmp_path, f"write {path}", callbacks=AgentCallbacks(fs="read-write"))
    assert text == path.read_text() == "written by the SDK"


async def test_it_uses_a_terminal(tmp_path: Path) -> None:
    text = await said(tmp_path, "run pwd; exit 4", callbacks=AgentCallbacks(terminal=True))
    assert text == f"4 {tmp_path}\n"


async def test_its_session_is_loaded_without_its_history(tmp_path: Path) -> None:
    outcome: TurnOutcome = await run_turn(
        sdk_agent(mode="code"), prompt(tmp_path, "echo new", session_id="sdk-9"), FakePort()
    )
    assert (outcome.text, outcome.session_id) == ("new", "sdk-9")


async def test_it_is_cancelled(tmp_path: Path) -> None:
    port = FakePort()
    work = turn_of(sdk_agent(), prompt(tmp_path, "wait"), port)
    turn = asyncio.create_task(work.run())
    await until(lambda: "writing the answer" in port.shown)
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    assert work.outcome().text == "waiting"
