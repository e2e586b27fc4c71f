"""What every result of ours has in common, whoever gives it."""

from typing import Any

from msgspec import Raw

EMPTY_RESULT = b"{}"


def error_result(message: str) -> dict[str, Any]:
    """A tool's failure, for the model to read."""
    return {"content": [{"type": "text", "text": message}], "isError": True}


def identified(result: dict[str, Any], server_info: bytes) -> dict[str, Any]:
    """A modern result that names its server and its type."""
    meta = result.get("_meta") or {}
    if server_info:
        meta = {"io.modelcontextprotocol/serverInfo": Raw(server_info), **meta}
    named: dict[str, Any] = {"resultType": "complete", **result}
    if meta:
        named["_meta"] = meta
    return named
