"""Middleware that redacts the results of `delegate_task`, and marks each time that one passes."""

from typing import Any

from portico.library.chain.hooks import ToolRequest


def on_result(call: ToolRequest, result: dict[str, Any]) -> dict[str, Any]:
    """Change the texts of one tool."""
    if call.name == "delegate_task" and "notes" not in result.get("structuredContent", {}):
        for block in result["content"]:
            block["text"] = block["text"].replace("ana@example.com", "[e-mail]") + " [passed]"
        result.pop("structuredContent", None)
    return result
