"""Agents that take one line of JSON-RPC and return one."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from portico.agents.turns.delegation import AgentLaunch
from portico.agents.turns.failures import AgentFailed
from portico.agents.turns.run_turn import run_turn
from portico.core.config.agents_schema import AgentTimeouts
from portico.core.model.errors import TargetError
from tests.agents.turns.rig import QUICK, WAIT_S, FakePort, prompt
from tests.support.backoff import until

AGENT = Path(__file__).parent / "line_agent.py"


def line_agent(how: str, **options: object) -> AgentLaunch:
    argv = (sys.executable, "-I", "-S", str(AGENT), how)
    return AgentLaunch(name="old", kind="line", argv=argv, grace=QUICK, **options)  # type: ignore[arg-type]


async def test_the_request_is_one_tools_call(tmp_path: Path) -> None:
    port = FakePort()
    block = {"type": "text", "text": "the context"}
    outcome = await run_turn(line_agent("echo"), prompt(tmp_path, "do", blocks=(block,)), port)
    assert json.loads(outcome.text) == {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {
            "name": "execute_task",
            "arguments": {"prompt": "do", "context": "the context"},
        },
    }
    assert outcome.stop_reason == "end_turn"
    assert outcome.garbage == 1
    assert port.shown[-1] == "50 % done"


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ('"plain"', "plain"),
        ('{"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}', "a\nb"),
        ('{"content": "c"}', "c"),
        ('{"answer": 42}', '{"answer": 42}'),
        ("[1]", "[1]"),
    ],
)
async def test_any_result_has_a_text(tmp_path: Path, result: str, text: str) -> None:
    outcome = await run_turn(line_agent(result), prompt(tmp_path), FakePort())
    assert outcome.text == text
    assert not outcome.is_error


async def test_a_result_over_the_limit_is_an_error(tmp_path: Path) -> None:
    port = FakePort()
    outcome = await run_turn(line_agent("huge"), prompt(tmp_path), port)
    assert outcome.is_error
    assert outcome.error == "old sent a message over the limit of 32 MB, which was dropped"
    assert port.events == ["a message of old exceeded the limit of 32 MB and was dropped"]


async def test_usage_is_read_and_a_tool_error_is_an_error(tmp_path: Path) -> None:
    result = {
        "content": [{"type": "text", "text": "it failed"}],
        "isError": True,
        "usage": {"input_tokens": 3, "output_tokens": 4},
    }
    outcome = await run_turn(line_agent(json.dumps(result)), prompt(tmp_path), FakePort())
    assert (outcome.is_error, outcome.error, outcome.stop_reason) == (True, "it failed", "failed")
    assert outcome.usage.tokens == 7


@pytest.mark.parametrize(
    ("how", "error"),
    [("error", "old failed: no model (-32603)"), ("exit", "old exited with code 5")],
)
async def test_a_failure_is_an_outcome(tmp_path: Path, how: str, error: str) -> None:
    outcome = await run_turn(line_agent(how), prompt(tmp_path), FakePort())
    assert outcome.is_error
    assert outcome.error.startswith(error)


async def test_a_long_prompt_reaches_the_agent(tmp_path: Path) -> None:
    text = "long " * 500_000
    outcome = await run_turn(
        line_agent("echo", max_text=8 << 20), prompt(tmp_path, text), FakePort()
    )
    assert json.loads(outcome.text)["params"]["arguments"]["prompt"] == text


async def test_one_that_hangs_is_stopped(tmp_path: Path) -> None:
    agent = line_agent("hang", timeouts=AgentTimeouts(hard=0.3))
    outcome = await run_turn(agent, prompt(tmp_path), FakePort())
    assert outcome.stop_reason == "hard_timeout"
    assert outcome.error == "old was stopped: it ran for more than 0.3 s"


async def test_it_can_be_cancelled(tmp_path: Path) -> None:
    port = FakePort()
    turn = asyncio.create_task(run_turn(line_agent("hang"), prompt(tmp_path), port))
    await until(lambda: port.shown[-1:] == ["old is working"])
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(turn, WAIT_S)


async def test_it_can_neither_continue_nor_start_without_a_command(tmp_path: Path) -> None:
    with pytest.raises(AgentFailed, match="old cannot continue a session"):
        await run_turn(line_agent("echo"), prompt(tmp_path, session_id="s"), FakePort())
    missing = AgentLaunch(name="old", kind="line", argv=("no-such-agent",))
    with pytest.raises(TargetError, match="there is no command 'no-such-agent'"):
        await run_turn(missing, prompt(tmp_path), FakePort())
