"""Fields that results of any provider share."""

from collections.abc import Sequence
from typing import Any

from msgspec import Raw

EMPTY_RESULT = b"{}"


def error_result(message: str) -> dict[str, Any]:
    """Return the result of a failed tool; the model gets the message."""
    return {"content": [{"type": "text", "text": message}], "isError": True}


def noted_result(
    texts: Sequence[str], data: dict[str, Any], notes: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the result of a tool of Portico: data, the texts that show it, and notes. Clients give
    a model either the text or the data, so the notes are in both."""
    shown = {"type": "text", "text": "\n\n".join([*texts, *notes])}
    return {"content": [shown], "structuredContent": with_notes(data, notes)}


def with_notes(data: dict[str, Any], notes: Sequence[str]) -> dict[str, Any]:
    """Return structured content with the notes to it, if there are any."""
    return {**data, "notes": [*notes]} if notes else data


def identified(result: dict[str, Any], server_info: bytes) -> dict[str, Any]:
    """Return a modern result with its type and the server's identity."""
    meta = result.get("_meta") or {}
    if server_info:
        meta = {"io.modelcontextprotocol/serverInfo": Raw(server_info), **meta}
    complete: dict[str, Any] = {"resultType": "complete", **result}
    if meta:
        complete["_meta"] = meta
    return complete
