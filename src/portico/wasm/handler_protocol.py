"""The requests between a link and its worker, as `components/handler_worker.py` explains them."""

READY, HANDLE = "portico/ready", "portico/handle"
NEXT, ASK, TELL = "portico/next", "portico/ask", "portico/tell"
CALL, REQUEST, RESPONSE, SESSION = "call", "request", "response", "session"
"""Fields of params and results."""
PROGRESS, LOG, UPDATED, CHANGED = "progress", "log", "updated", "changed"
"""The kinds of notifications."""
_HANDLERS = ("portico:mcp/handler", "wasmcp:server/handler")
_DATED, _SUFFIX = "wasmcp:mcp-v", "/server-handler"


def is_handler(export: str) -> bool:
    """True for the name of an export that makes a component middleware."""
    interface = export.partition("@")[0]
    is_dated = interface.startswith(_DATED) and interface.endswith(_SUFFIX)
    return is_dated or interface in _HANDLERS
