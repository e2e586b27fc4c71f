"""The requests between a link and its worker, as `components/handler_worker.py` explains them."""

READY, HANDLE = "portico/ready", "portico/handle"
NEXT, ASK, TELL = "portico/next", "portico/ask", "portico/tell"
CALL, REQUEST, RESPONSE, SESSION = "call", "request", "response", "session"
"""Fields of params and results."""
PROGRESS, LOG, UPDATED, CHANGED = "progress", "log", "updated", "changed"
"""The kinds of notifications."""
_OWN = "portico:mcp/handler@"


def is_handler(export: str) -> bool:
    """True for the name of an export that makes a component middleware."""
    return export.startswith(_OWN)
