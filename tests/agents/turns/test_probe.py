"""Probes: an agent is checked without a prompt."""

import sys
from pathlib import Path
from typing import Any

import pytest

from portico.agents.turns.delegation import AgentLaunch
from portico.agents.turns.failures import AgentFailed, LoginRequired
from portico.agents.turns.probe import probe
from portico.agents.turns.run_turn import run_turn
from portico.core.config.agents_schema import AgentTimeouts
from tests.agents.turns.rig import FakePort, launch, log_of, prompt


async def test_a_probe_shows_what_the_agent_is_and_sends_no_prompt(tmp_path: Path) -> None:
    log = tmp_path / "log"
    script = {
        "log": str(log),
        "capabilities": {"loadSession": True, "sessionCapabilities": {"close": {}}},
    }
    profile = await probe(launch(script=script), str(tmp_path))
    assert (profile.name, profile.version) == ("Fake Agent", "1.0")
    assert profile.has("loadSession")
    assert profile.found_command == ""
    assert not profile.has("mcpCapabilities", "http")
    methods = [one["method"] for one in log_of(log, "client")]
    assert methods == ["initialize", "session/new", "session/close"]


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        ({"error": {"code": -32000, "message": "log in"}}, LoginRequired, "fake needs a login"),
        ({"error": {"code": -32603, "message": "no"}}, AgentFailed, "did not open a session: no"),
        ("hang", AgentFailed, "fake did not start within"),
    ],
)
async def test_a_probe_raises_why_the_agent_cannot_be_used(
    tmp_path: Path, answer: Any, error: type[Exception], message: str
) -> None:
    agent = launch(script={"answers": {"session/new": answer}}, timeouts=AgentTimeouts(start=0.5))
    with pytest.raises(error, match=message):
        await probe(agent, str(tmp_path))


async def test_a_mode_that_the_agent_does_not_know_is_named(tmp_path: Path) -> None:
    failure = {"error": {"code": -32602, "message": "no such mode"}}
    agent = launch(script={"answers": {"session/set_mode": failure}}, mode="read-only")
    expected = "fake rejected the mode 'read-only': no such mode (-32602); "
    for run in (probe(agent, str(tmp_path)), run_turn(agent, prompt(tmp_path), FakePort())):
        with pytest.raises(AgentFailed) as raised:
            await run
        assert (
            str(raised.value)
            == f"{expected}install its newest version, or set another mode in the config"
        )


async def test_a_failed_handshake_names_the_agent(tmp_path: Path) -> None:
    failure = {"error": {"code": -32603, "message": "boom"}}
    with pytest.raises(AgentFailed) as raised:
        await probe(launch(script={"answers": {"initialize": failure}}), str(tmp_path))
    assert str(raised.value) == "fake rejected the handshake (initialize): boom (-32603)"


async def test_of_a_command_only_its_existence_is_checked(tmp_path: Path) -> None:
    found = AgentLaunch(name="tool", kind="cli", argv=(sys.executable,))
    profile = await probe(found, str(tmp_path))
    assert (profile.name, profile.found_command) == ("tool", sys.executable)
    missing = AgentLaunch(name="tool", kind="line", argv=("no-such-tool",))
    with pytest.raises(AgentFailed, match="there is no command 'no-such-tool'"):
        await probe(missing, str(tmp_path))


@pytest.mark.parametrize(
    ("answer", "logged_in"),
    [
        ({"result": {"state": "authenticated"}}, True),
        ({"result": {"state": "not_required"}}, True),
        ({"result": {"state": "unknown"}}, None),
        ({"result": {"state": "_new"}}, None),
        ({"result": {}}, None),
        ({"error": {"code": -32601, "message": "unknown"}}, None),
    ],
)
async def test_an_agent_that_reports_its_login_is_believed(
    tmp_path: Path, answer: dict[str, Any], logged_in: bool | None
) -> None:
    script = {"capabilities": {"auth": {"status": {}}}, "answers": {"auth/status": answer}}
    assert (await probe(launch(script=script), str(tmp_path))).logged_in is logged_in


async def test_an_agent_that_does_not_report_its_login_is_unknown(tmp_path: Path) -> None:
    assert (await probe(launch(), str(tmp_path))).logged_in is None


async def test_a_missing_login_is_found_even_if_sessions_can_be_opened(tmp_path: Path) -> None:
    answer = {"result": {"state": "unauthenticated"}}
    script = {"capabilities": {"auth": {"status": {}}}, "answers": {"auth/status": answer}}
    with pytest.raises(LoginRequired, match="fake needs a login"):
        await probe(launch(script=script), str(tmp_path))
