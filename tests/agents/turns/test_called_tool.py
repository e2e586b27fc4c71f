"""The tool of a call, as real agents announce it, and nothing that a model can write."""

from typing import Any

import pytest

from portico.agents.turns.called_tool import called_tool, tool_of_server

NAME = "mcp__portico__notes__add"
OF_QWEN = {
    "title": '{"text":"x"}',
    "kind": "other",
    "rawInput": {"text": "x"},
    "_meta": {"toolName": NAME},
}
OF_CLAUDE = {
    "title": NAME,
    "kind": "other",
    "rawInput": {"text": "x"},
    "_meta": {"claudeCode": {"toolName": NAME}},
}
OF_CODEX = {
    "title": "mcp.portico.notes__add",
    "kind": "execute",
    "rawInput": {"server": "portico", "tool": "notes__add", "arguments": {"text": "x"}},
    "_meta": {"is_mcp_tool_call": True},
}
OF_OPENCODE = {
    "sessionUpdate": "tool_call",
    "title": "portico_notes__add",
    "kind": "other",
    "rawInput": {},
}
OF_GEMINI = {
    "toolCallId": "mcp_portico_notes__add__call-1",
    "title": "notes__add (portico MCP Server)",
    "kind": "other",
}


@pytest.mark.parametrize("call", [OF_QWEN, OF_CLAUDE, OF_CODEX, OF_OPENCODE, OF_GEMINI])
def test_the_tool_of_each_agent_is_found(call: dict[str, Any]) -> None:
    assert tool_of_server("portico", called_tool(call), call) == "notes__add"
    assert tool_of_server("other", called_tool(call), call) == ""


@pytest.mark.parametrize(
    "call",
    [
        {"kind": "execute", "title": NAME, "rawInput": {"command": NAME}},
        {"kind": "other", "title": NAME, "rawInput": {"description": NAME}},
        {"kind": "other", "title": NAME},
        {"sessionUpdate": "tool_call", "kind": "execute", "title": NAME, "rawInput": {}},
        {**OF_CODEX, "_meta": {}},
        {**OF_OPENCODE, "sessionUpdate": "tool_call_update"},
        {**OF_GEMINI, "toolCallId": "run_shell_command__call-1"},
        {**OF_GEMINI, "toolCallId": "mcp_other_notes__add__call-1"},
        {**OF_CLAUDE, "_meta": {"claudeCode": {"toolName": "Bash"}}},
        {**OF_QWEN, "_meta": {"toolName": 3}, "name": ["x"]},
        {**OF_QWEN, "_meta": {"toolName": f"{NAME}{'x' * 10_000}"}},
        {"_meta": [], "rawInput": 3, "title": {}},
    ],
)
def test_a_text_of_the_model_is_not_the_name_of_a_tool(call: dict[str, Any]) -> None:
    assert tool_of_server("portico", called_tool(call), call) == ""
