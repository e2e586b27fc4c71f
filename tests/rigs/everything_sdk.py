"""The official suite's server on the official SDK, in one era or both.

    python tests/rigs/everything_sdk.py (--http PORT | --stdio) [--era both|legacy|modern]

Over HTTP it prints its port first; 0 picks a free one. It speaks at /mcp.
"""

import argparse
import json
import os
import socket
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from mcp.server import NotificationOptions
from mcp.server._streamable_http_modern import handle_modern_request
from mcp.server.runner import _serve_modern_stream, serve_dual_era_loop, serve_loop
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http import EventCallback, EventId, EventMessage, EventStore, StreamId
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import JSONRPCMessage
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

# Run as a script, Python looks for imports beside it and not at the root.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.rigs import everything_asks, everything_offers
from tests.rigs.everything_offers import server

everything_asks.add_to(server)
everything_offers.add_to(server)
low: Any = server._lowlevel_server
# The SDK's own legacy declaration lacks `listChanged`.
low.create_initialization_options = partial(
    low.create_initialization_options, NotificationOptions(True, True, True)
)

App = Callable[[Scope, Receive, Send], Awaitable[None]]

VERSION_HEADER = b"mcp-protocol-version"
LOCAL = ("127.0.0.1:*", "localhost:*")
SECURITY = TransportSecuritySettings(
    enable_dns_rebinding_protection=True,
    allowed_hosts=list(LOCAL),
    allowed_origins=[f"http://{host}" for host in LOCAL],
)


class Events(EventStore):
    """All that was sent, for clients that come back."""

    def __init__(self) -> None:
        self._sent: list[tuple[StreamId, JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: StreamId, message: JSONRPCMessage | None) -> EventId:
        """Keep a message; its id is its place."""
        self._sent.append((stream_id, message))
        return str(len(self._sent))

    async def replay_events_after(
        self, last_event_id: EventId, send_callback: EventCallback
    ) -> StreamId | None:
        """Send again what came after an event on its stream."""
        if not last_event_id.isdecimal() or not 0 < int(last_event_id) <= len(self._sent):
            return None
        last = int(last_event_id)
        stream = self._sent[last - 1][0]
        for place, (of, message) in enumerate(self._sent[last:], last + 1):
            if of == stream and message is not None:
                await send_callback(EventMessage(message, str(place)))
        return stream


def legacy_only(manager: StreamableHTTPSessionManager) -> App:
    """As a server from before 2026: it knows neither the version nor `server/discover`."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [pair for pair in scope["headers"] if not _names_a_modern_version(pair)]
        body, again = await _peek(receive)
        if body.get("method") == "server/discover" and b"mcp-session-id" not in dict(headers):
            refusal = _error(body, -32601, "Method not found", "server/discover")
            await refusal(scope, receive, send)
            return
        await manager.handle_request({**scope, "headers": headers}, again, send)

    return app


def modern_only(manager: StreamableHTTPSessionManager) -> App:
    """As a server without sessions: every request goes the modern way, whatever it claims."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        body, again = await _peek(receive)
        # Under a modern header this method does not exist, and the SDK returns an error.
        modern = any(_names_a_modern_version(pair) for pair in scope["headers"])
        if body.get("method") == "initialize" and not modern:
            requested = (body.get("params") or {}).get("protocolVersion")
            data = {"supported": list(MODERN_PROTOCOL_VERSIONS), "requested": requested}
            refusal = _error(body, -32022, "Unsupported protocol version", data)
            await refusal(scope, receive, send)
            return
        state = manager._lifespan_state
        await handle_modern_request(low, SECURITY, False, state, scope, again, send)

    return app


HTTP: dict[str, Callable[[StreamableHTTPSessionManager], App]] = {
    "both": lambda manager: manager.handle_request,
    "legacy": legacy_only,
    "modern": modern_only,
}


async def serve_http(port: int, era: str) -> None:
    """Serve at /mcp until terminated."""
    listener = socket.create_server(("127.0.0.1", port))
    os.write(1, b"%d\n" % listener.getsockname()[1])
    manager = StreamableHTTPSessionManager(
        low, event_store=Events(), retry_interval=100, security_settings=SECURITY
    )
    mcp = HTTP[era](manager)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        answer = mcp if scope["path"] == "/mcp" else Response(status_code=404)
        await answer(scope, receive, send)

    # httptools keeps the blanks around a header's value, which are not part of it (RFC 9110, 5.5).
    config = uvicorn.Config(app, log_level="warning", lifespan="off", http="h11")
    async with manager.run():
        await uvicorn.Server(config).serve(sockets=[listener])


async def serve_stdio(era: str) -> None:
    """Serve the client on our pipes."""
    async with stdio_server() as (read, write), low.lifespan(low) as state:
        if era == "modern":
            await _serve_modern_stream(
                low, read, write, lifespan_state=state, raise_exceptions=False
            )
        else:
            serve = serve_loop if era == "legacy" else serve_dual_era_loop
            await serve(low, read, write, lifespan_state=state)


async def _peek(receive: Receive) -> tuple[dict[str, Any], Receive]:
    """The body as an object, and a `receive` that gives it once more."""
    whole, more = b"", True
    while more:
        message = await receive()
        whole, more = whole + message.get("body", b""), message.get("more_body", False)
    pending: list[Message] = [{"type": "http.request", "body": whole, "more_body": False}]

    async def again() -> Message:
        return pending.pop() if pending else await receive()

    try:
        body = json.loads(whole)
    except ValueError:
        body = None
    return body if isinstance(body, dict) else {}, again


def _names_a_modern_version(header: tuple[bytes, bytes]) -> bool:
    name, value = header
    return name == VERSION_HEADER and value.decode("latin-1") not in HANDSHAKE_PROTOCOL_VERSIONS


def _error(body: dict[str, Any], code: int, message: str, data: Any) -> Response:
    error = {"code": code, "message": message, "data": data}
    return JSONResponse({"jsonrpc": "2.0", "id": body.get("id"), "error": error}, 400)


def main() -> None:
    """Serve as the arguments say."""
    parser = argparse.ArgumentParser()
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--http", type=int, metavar="PORT")
    how.add_argument("--stdio", action="store_true")
    parser.add_argument("--era", choices=("both", "legacy", "modern"), default="both")
    options = parser.parse_args()
    if options.stdio:
        anyio.run(serve_stdio, options.era)
    else:
        anyio.run(serve_http, options.http, options.era)


if __name__ == "__main__":
    main()
