"""The definitions of the tools for tasks."""

from typing import Any

from portico.core.protocol.codec import encode

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
        # An answer may allow anything.
        _tool(TASK_STATUS, what, status, hints(destroys=True, reaches_out=True)),
        _tool(CANCEL_TASK, "Cancel a task.", {"task_id": _ID}, hints(destroys=True, repeats=True)),
        _tool(LIST_TASKS, "List your tasks, newest first.", {}, hints(reads=True, repeats=True)),
    )
    return dict(zip(TASK_TOOL_NAMES, map(encode, found), strict=True))


def hints(
    *, reads: bool = False, destroys: bool = False, repeats: bool = False, reaches_out: bool = False
) -> dict[str, bool]:
    """Return the annotations of a tool: whether it only reads, may destroy, does no more when it is
    repeated, and reaches beyond Portico."""
    return {
        "readOnlyHint": reads,
        "destructiveHint": destroys,
        "idempotentHint": repeats,
        "openWorldHint": reaches_out,
    }


def _tool(
    name: str, description: str, properties: dict[str, Any], annotations: dict[str, bool]
) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if "task_id" in properties:
        schema["required"] = ["task_id"]
    tool = {"name": name, "description": description, "inputSchema": schema}
    return {**tool, "annotations": annotations, "_meta": _ALWAYS_LISTED}
