"""Finds the name of the tool that a call is of, where only the agent itself can have written it.

A title is often a text of the model, such as a command. The name decides about a permission, so it
is read from fields that a model has no influence on; agents differ in them.
"""

import re
from typing import Any

from portico.agents.turns.lenient import fields, text

_MAX_NAME = 200


def called_tool(update: dict[str, Any]) -> str:
    """Return the tool that a request, or the first update about a call, names; empty if none."""
    meta, raw = fields(update.get("_meta")), fields(update.get("rawInput"))
    structured = (
        update.get("name"),
        meta.get("toolName"),  # Qwen Code
        fields(meta.get("claudeCode")).get("toolName"),
    )
    name = next((one for one in map(text, structured) if one), "")
    if not name and meta.get("is_mcp_tool_call") is True:  # Codex
        name = f"mcp__{text(raw.get('server'))}__{text(raw.get('tool'))}"
    if not name and _is_announcement(update):
        name = text(update.get("title"))
    return name if len(name) <= _MAX_NAME else ""


def _is_announcement(update: dict[str, Any]) -> bool:
    """True if the model has not written the input yet: OpenCode's title is then the tool."""
    is_first = update.get("sessionUpdate") == "tool_call" and update.get("rawInput") == {}
    return is_first and update.get("kind") == "other"


def tool_of_server(server: str, name: str, call: dict[str, Any]) -> str:
    """Return the tool of a server that a call is of, by its own name; empty if it is of another."""
    found = re.fullmatch(rf"(?:mcp__)?{re.escape(server)}__?(.+)", name)
    if found:
        return found[1]
    # Gemini CLI has the name in the id of the call, and in its title.
    shown = re.fullmatch(rf"(\S+) \({re.escape(server)} MCP Server\)", text(call.get("title")))
    if shown and text(call.get("toolCallId")).startswith(f"mcp_{server}_{shown[1]}__"):
        return shown[1]
    return ""
