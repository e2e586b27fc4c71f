"""The definitions of the tools for tasks."""

from typing import Any

from portico.protocol.codec import encode

TASK_STATUS, CANCEL_TASK, LIST_TASKS = "task_status", "cancel_task", "list_tasks"
TASK_TOOL_NAMES = (TASK_STATUS, CANCEL_TASK, LIST_TASKS)
MAX_WAIT_S = 50
"""Clients give up after a minute."""
_ALWAYS_LISTED = {"anthropic/alwaysLoad": True}
_ID = {"type": "string", "description": "as returned, e.g. ptk_..."}
_WAIT = {"type": "number", "minimum": 0, "maximum": MAX_WAIT_S, "default": 0}
_ANSWER = {
    "type": "string",
    "description": "to an open question addressed to you; several fields as JSON",
}


def task_tools() -> dict[str, bytes]:
    """Return the definitions by name."""
    what = "State of a task; its result once it is done. Waits up to wait_s for that."
    status = {"task_id": _ID, "wait_s": _WAIT, "answer": _ANSWER}
    found = (
        _tool(TASK_STATUS, what, status, required=["task_id"]),
        _tool(CANCEL_TASK, "Cancel a task.", {"task_id": _ID}, required=["task_id"]),
        _tool(LIST_TASKS, "List your tasks, newest first.", {}, reads=True),
    )
    return dict(zip(TASK_TOOL_NAMES, map(encode, found), strict=True))


def _tool(
    name: str,
    description: str,
    properties: dict[str, Any],
    *,
    required: list[str] | None = None,
    reads: bool = False,
) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    tool: dict[str, Any] = {"name": name, "description": description, "inputSchema": schema}
    if reads:
        tool["annotations"] = {"readOnlyHint": True, "openWorldHint": False}
    return {**tool, "_meta": _ALWAYS_LISTED}
