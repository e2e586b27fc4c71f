"""The requests between a link and its worker, as `components/handler_worker.py` explains them."""

import re

READY, HANDLE = "portico/ready", "portico/handle"
NEXT, ASK, TELL = "portico/next", "portico/ask", "portico/tell"
CALL, REQUEST, RESPONSE, SESSION = "call", "request", "response", "session"
"""Fields of params and results."""
PROGRESS, LOG, UPDATED, CHANGED = "progress", "log", "updated", "changed"
"""The kinds of notifications."""
_HANDLERS = re.compile(r"portico:mcp/handler@.*|wasmcp:[a-z0-9-]+/(server-)?handler@.*")


def is_handler(export: str) -> bool:
    """True for the name of an export that makes a component middleware."""
    return _HANDLERS.fullmatch(export) is not None
