"""How servers at a URL talk, but for the calls that are a test's own."""

import asyncio

from portico.upstream.connections.handshake import HandshakeLimits
from tests.upstream.connections.fakes import WAIT_S, legacy, modern, result
from tests.upstream.connections.web_server import Asked, Talk, reply

Writer = asyncio.StreamWriter
QUICK = HandshakeLimits(init_s=WAIT_S, list_s=WAIT_S, call_s=WAIT_S)
FINE = {"content": [{"type": "text", "text": "fine"}]}


def modern_server(call: Talk) -> Talk:
    """Answers discovery and lists; calls are the test's own."""

    async def talk(request: Asked, writer: Writer) -> None:
        if request.method == "tools/call":
            await call(request, writer)
        elif request.method == "tools/list":
            reply(writer, 200, result(request.message, {"tools": []}))
        else:
            reply(writer, 200, modern(request.message, tools={})[0])

    return talk


def legacy_server(call: Talk, get: Talk | None = None) -> Talk:
    """A server with sessions; calls, and the stream of its own, are the test's own."""

    async def talk(request: Asked, writer: Writer) -> None:
        if request.method == "initialize":
            reply(writer, 200, legacy(request.message, tools={})[0], mcp_session_id="s1")
        elif request.method == "server/discover":
            reply(writer, 400, b"Bad Request: no session", "text/plain")
        elif request.verb == "GET":
            await get(request, writer) if get is not None else reply(writer, 405)
        elif request.method == "tools/call":
            await call(request, writer)
        else:
            reply(writer, 202)

    return talk


async def refuse(request: Asked, writer: Writer) -> None:
    """Answers nothing."""
    reply(writer, 500)
