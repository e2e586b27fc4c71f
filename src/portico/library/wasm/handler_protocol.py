"""Requests between a link and its worker, as `library/components/handler_worker.py` explains."""

from portico.upstream.wires.wire import MAX_MESSAGE

MAX_TEXT = MAX_MESSAGE - 64 * 1024
"""The longest request or response; with what surrounds it on the pipe, it is a whole message."""
READY, HANDLE = "portico/ready", "portico/handle"
NEXT, ASK, TELL = "portico/next", "portico/ask", "portico/tell"
CALL, REQUEST, RESPONSE, SESSION = "call", "request", "response", "session"
"""Fields of params and results."""
PROGRESS, LOG, UPDATED, CHANGED = "progress", "log", "updated", "changed"
"""The kinds of notifications."""
_HANDLERS = ("portico:mcp/handler", "wasmcp:server/handler")
_DATED, _SUFFIX = "wasmcp:mcp-v", "/server-handler"


def too_long(what: str, size: int) -> str:
    """Return why a request or response cannot pass the pipe between a link and its worker."""
    return f"{what} has {size:,} bytes; {MAX_TEXT:,} is the limit of sandboxed middleware"


def is_handler(export: str) -> bool:
    """True for the name of an export that makes a component middleware."""
    interface = export.partition("@")[0]
    is_dated = interface.startswith(_DATED) and interface.endswith(_SUFFIX)
    return is_dated or interface in _HANDLERS
