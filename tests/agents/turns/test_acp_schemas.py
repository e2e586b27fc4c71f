"""Every message of a delegation, in both directions, is valid by the schemas of ACP v1."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from portico.agents.turns.acp_connection import AcpConnection
from portico.agents.turns.delegation import AgentAnswer, ProvidedServer
from portico.agents.turns.run_turn import run_turn
from portico.core.config.agents_schema import AgentCallbacks, AgentPermissions, AgentTimeouts
from tests.agents.turns.acp_oracle import (
    AGENT,
    CLIENT,
    methods_of,
    problems,
    problems_in,
    update_kinds,
)
from tests.agents.turns.rig import FakePort, accept, launch, log_of, permission, prompt
from tests.support.backoff import until

WAIT_START_S = 60.0
TEXT = {"type": "text", "text": "text"}
UPDATES: list[dict[str, Any]] = [
    {"sessionUpdate": "user_message_chunk", "content": TEXT},
    {"sessionUpdate": "agent_message_chunk", "content": TEXT, "messageId": "m"},
    {"sessionUpdate": "agent_thought_chunk", "content": TEXT},
    {"sessionUpdate": "tool_call", "toolCallId": "1", "title": "npm test", "kind": "execute"},
    {"sessionUpdate": "tool_call_update", "toolCallId": "1", "status": "completed"},
    {
        "sessionUpdate": "plan",
        "entries": [{"content": "c", "priority": "high", "status": "pending"}],
    },
    {"sessionUpdate": "available_commands_update", "availableCommands": []},
    {"sessionUpdate": "current_mode_update", "currentModeId": "m"},
    {"sessionUpdate": "config_option_update", "configOptions": []},
    {"sessionUpdate": "session_info_update", "title": "t"},
    {
        "sessionUpdate": "usage_update",
        "used": 1,
        "size": 2,
        "cost": {"amount": 0.1, "currency": "USD"},
    },
    {"sessionUpdate": "notice", "severity": "warning", "title": "careful"},
    {"sessionUpdate": "compaction_update", "compactionId": "c", "status": "in_progress"},
    {"sessionUpdate": "compaction_summary_chunk", "compactionId": "c", "content": TEXT},
]
FORM = {
    "mode": "form",
    "message": "Which?",
    "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
}
CAPABILITIES = {
    "loadSession": True,
    "sessionCapabilities": {"close": {}},
    "mcpCapabilities": {"http": True},
    "promptCapabilities": {"embeddedContext": True},
}


def test_the_updates_of_this_test_are_all_there_are() -> None:
    assert {update["sessionUpdate"] for update in UPDATES} == update_kinds()


async def test_a_turn_with_everything_is_valid(tmp_path: Path) -> None:
    log, path = tmp_path / "log", str(tmp_path / "a.txt")
    steps = [
        *({"update": update} for update in UPDATES),
        permission("edit", path),
        permission("execute"),
        {"ask": "fs/write_text_file", "params": {"path": path, "content": "x"}},
        {"ask": "fs/read_text_file", "params": {"path": path}},
        {"ask": "fs/read_text_file", "params": {"path": "/etc/passwd"}},
        {"terminal": "sh", "args": ["-c", "exit 3"]},
        {"ask": "elicitation/create", "params": FORM},
        {"take_back": "elicitation/create", "params": FORM},
        {"stop": "end_turn"},
    ]
    agent = launch(
        *steps,
        script={"log": str(log), "capabilities": CAPABILITIES},
        callbacks=AgentCallbacks(fs="read-write", terminal=True),
        permissions=AgentPermissions(allow=("edit",)),
        auth_method="key",
        mode="code",
        config_options={"model": "small", "fast": True},
    )
    inner = {"type": "resource", "resource": {"uri": "x:y", "text": "inside"}}
    link = {"type": "resource_link", "name": "a", "uri": "file:///a"}
    given = prompt(
        tmp_path,
        blocks=(inner, link),
        servers=(
            ProvidedServer(name="web", url="http://127.0.0.1:1/mcp", headers={"A": "b"}),
            ProvidedServer(name="local", argv=("/bin/x", "y"), env={"C": "d"}),
        ),
    )
    outcome = await run_turn(agent, given, FakePort(accept("no")))
    assert not outcome.is_error
    assert {*outcome.updates} == update_kinds()
    assert problems_in(log) == []
    sent = {message["method"] for message in log_of(log, AGENT) if "method" in message}
    assert sent == methods_of(AGENT) - {"elicitation/complete"}


@pytest.mark.parametrize("resume", [{}, {"resume": {}}])
async def test_continued_and_cancelled_turns_are_valid(
    tmp_path: Path, resume: dict[str, Any]
) -> None:
    log = tmp_path / "log"
    capabilities = {"loadSession": True, "sessionCapabilities": {"close": {}, **resume}}
    script = {"log": str(log), "capabilities": capabilities, "history": UPDATES[:2]}
    port = FakePort(hangs=True)
    turn = asyncio.create_task(
        run_turn(
            launch(permission(), {"wait_for_cancel": True}, script=script),
            prompt(tmp_path, session_id="old"),
            port,
        )
    )
    await port.asked.wait()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    assert problems_in(log) == []
    sent = [message["method"] for message in log_of(log, CLIENT) if "method" in message]
    opened = "session/resume" if resume else "session/load"
    assert sent == ["initialize", opened, "session/prompt", "session/cancel", "session/close"]


async def test_a_request_that_is_given_up_is_cancelled_validly(tmp_path: Path) -> None:
    log = tmp_path / "log"
    agent = launch(
        script={"log": str(log), "answers": {"session/new": "hang"}},
        timeouts=AgentTimeouts(start=WAIT_START_S),
    )
    connection = AcpConnection(agent, str(tmp_path))
    await connection.open()
    try:
        opening = asyncio.create_task(connection.new_session(str(tmp_path), []))
        await until(lambda: len(log_of(log, CLIENT)) == 2)
        opening.cancel()
        await until(lambda: len(log_of(log, CLIENT)) == 3)
    finally:
        await connection.close()
    assert log_of(log, CLIENT)[-1] == {
        "jsonrpc": "2.0",
        "method": "$/cancel_request",
        "params": {"requestId": 2},
    }
    assert problems_in(log) == []


def test_the_oracle_finds_invalid_messages() -> None:
    request = {"jsonrpc": "2.0", "id": 1, "method": "session/new", "params": {"cwd": "/"}}
    assert len(problems([(CLIENT, request)])) > 0
    answer: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "result": {"outcome": {"outcome": "no"}}}
    asked = {"method": "session/request_permission", "params": {}}
    assert len(problems([(AGENT, {"jsonrpc": "2.0", "id": 1, **asked}), (CLIENT, answer)])) > 1


async def test_an_answer_of_a_person_is_valid_too(tmp_path: Path) -> None:
    log = tmp_path / "log"
    agent = launch({"ask": "elicitation/create", "params": FORM}, script={"log": str(log)})
    await run_turn(agent, prompt(tmp_path), FakePort(AgentAnswer("accept", {"name": "x"})))
    assert problems_in(log) == []
    assert log_of(log, CLIENT)[-1]["result"] == {"action": "accept", "content": {"name": "x"}}
