"""Follows the tasks of a modern upstream for a modern client, on a stream of their own."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from msgspec import Raw

from portico.core.model.context import Context
from portico.core.model.errors import McpError
from portico.core.model.message import Request, Response
from portico.core.model.methods import LISTEN
from portico.core.protocol.codec import encode
from portico.core.protocol.eras import members
from portico.core.state.background import Background

_PAUSE_S = 1.0
_FOREVER_S = 24 * 3600.0
_NOTIFICATION = b'"notifications/tasks"'
Send = Callable[[bytes], Awaitable[None]]
Relay = Callable[[Request, Context], Awaitable[Response]]


class _ListeningPeer:
    """Receives the notifications of one stream."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def notify(self, message: bytes) -> None:
        """Pass on the state of a task."""
        fields = members(message)
        if bytes(fields.get("method", b"")) == _NOTIFICATION:
            await self._send(bytes(fields.get("params", b"{}")))

    async def ask(self, method: str, params: bytes) -> bytes:
        """Refuse a question: a stream of notifications has none."""
        raise McpError(f"{method} is refused: this stream carries notifications only")

    async def closed(self) -> None:
        """Wait forever: the listener ends the stream."""
        await asyncio.get_running_loop().create_future()


@asynccontextmanager
async def listening(
    relay: Relay, ids: Sequence[str], request: Request, send: Send
) -> AsyncGenerator[None, None]:
    """Send the params of every notification about these tasks. Each has a stream of its own, since
    different processes may hold them."""
    streams = Background()
    for id in ids:
        streams.start(_keep_listening(relay, id, request, send))
    try:
        yield
    finally:
        await streams.close()


async def _keep_listening(relay: Relay, id: str, request: Request, send: Send) -> None:
    meta = members(request.params).get("_meta", Raw(b"{}"))
    params = encode({"_meta": meta, "notifications": {"taskIds": [id]}})
    while True:
        asked = Request(
            method=LISTEN,
            id=b"0",
            params=params,
            version=request.version,
            meta=request.meta,
            timeout_s=_FOREVER_S,
            is_derived=True,
        )
        context = Context(peer=_ListeningPeer(send), version=request.version)
        try:
            if (await relay(asked, context)).error:
                return  # the server does not offer this
        except McpError:
            pass  # the connection was lost
        await asyncio.sleep(_PAUSE_S)
