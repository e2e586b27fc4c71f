"""The contexts that wasmcp's functions get: the stream and the session of a request's client."""

from typing import Any

from portico.library.wasm.guest import Guest
from portico.library.wasm.running_call import call_now

STORE = "portico"
"""The id of the store that sessions are in; there is one."""
_FRAME = {"prefix": "", "suffix": ""}


def session_now() -> str:
    """Return the id of the session of the client whose call this thread runs; empty for none."""
    call = call_now()
    values = None if call is None or call.client is None else call.client.values
    return "" if values is None else values.session


def dated_context(guest: Guest, protocol: str) -> dict[str, Any]:
    """Return the context of a package that is named after a version of MCP."""
    session = session_now()
    return {
        "client-stream": guest.client_stream(),
        "protocol-version": protocol,
        "session": {"session-id": session, "store-id": STORE} if session else None,
        "frame": _FRAME,
    }


def early_context(guest: Guest) -> dict[str, Any]:
    """Return the context of the first package, whose functions get the stream beside it."""
    return {"session-id": session_now() or None, "data": []}
