"""Fields that results of any provider share."""

from typing import Any

from msgspec import Raw

EMPTY_RESULT = b"{}"


def error_result(message: str) -> dict[str, Any]:
    """Return the result of a failed tool; the model gets the message."""
    return {"content": [{"type": "text", "text": message}], "isError": True}


def identified(result: dict[str, Any], server_info: bytes) -> dict[str, Any]:
    """Return a modern result with its type and the server's identity."""
    meta = result.get("_meta") or {}
    if server_info:
        meta = {"io.modelcontextprotocol/serverInfo": Raw(server_info), **meta}
    complete: dict[str, Any] = {"resultType": "complete", **result}
    if meta:
        complete["_meta"] = meta
    return complete
