"""The official Python SDK's client, over every transport and at every version it speaks."""

import asyncio
import contextlib
import importlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.client.session import ClientSession
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from tests.interop.doors import Doors
from tests.support.running import WAIT_S
from tests.support.soak import IS_SOAK

LEGACY = tuple(HANDSHAKE_PROTOCOL_VERSIONS)
MODERN = tuple(MODERN_PROTOCOL_VERSIONS)
WAYS = [
    (transport, version)
    for transport in ("stdio", "http", "sse", "websocket")
    for version in (*LEGACY, *MODERN)
]
FEW_WAYS = [way for way in WAYS if IS_SOAK or way[0] != "stdio" or way[1] in (LEGACY[-1], *MODERN)]
"""Over stdio each client starts a process, so most tests have one version of each era."""


class Way:
    """One transport at one version; `connect` gives a client that speaks it."""

    def __init__(
        self, doors: Doors, transport: str, version: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self._doors = doors
        self._monkeypatch = monkeypatch
        self.transport = transport
        self.version = version

    @property
    def modern(self) -> bool:
        """True if there is no handshake."""
        return self.version in MODERN

    @contextlib.asynccontextmanager
    async def connect(self, **options: Any) -> AsyncIterator[Client]:
        """A client of the SDK; the options are callbacks and settings of its own."""
        # The handshake always offers the newest version; which that is, is looked up here.
        session = importlib.import_module("mcp.client.session")
        if not self.modern:
            self._monkeypatch.setattr(session, "LATEST_HANDSHAKE_VERSION", self.version)
        mode = "auto" if self.modern else "legacy"
        try:
            with anyio.fail_after(WAIT_S):
                async with Client(self._open(), mode=mode, **options) as client:
                    assert client.protocol_version == self.version
                    yield client
        except BaseExceptionGroup as group:
            raise only_one(group) from None

    def _open(self) -> Any:
        if self.transport == "stdio":
            command, *args = self._doors.command()
            return stdio_client(StdioServerParameters(command=command, args=args))
        if self.transport == "sse":
            return sse_client(self._doors.url("/sse"))
        if self.transport == "websocket":
            return websocket_client(self._doors.socket_url())
        return streamable_http_client(self._doors.url())


@contextlib.asynccontextmanager
async def websocket_client(url: str) -> AsyncIterator[Any]:
    """WebSocket as a transport of the SDK, which has none since its version 2."""
    from websockets.asyncio.client import connect
    from websockets.typing import Subprotocol

    incoming, read = anyio.create_memory_object_stream[Any]()
    write, outgoing = anyio.create_memory_object_stream[Any]()

    async def receive(socket: Any) -> None:
        async with incoming:
            async for text in socket:
                message = types.jsonrpc_message_adapter.validate_json(text, by_name=False)
                await incoming.send(SessionMessage(message))

    async def send(socket: Any) -> None:
        async with outgoing:
            async for sent in outgoing:
                await socket.send(sent.message.model_dump_json(by_alias=True, exclude_unset=True))

    async with (
        connect(url, subprotocols=[Subprotocol("mcp")], proxy=None) as socket,
        read,
        write,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(receive, socket)
        tasks.start_soon(send, socket)
        yield read, write
        tasks.cancel_scope.cancel()


def only_one(group: BaseException) -> BaseException:
    """The original failure, without the exception groups that the SDK's task groups add."""
    while isinstance(group, BaseExceptionGroup) and len(group.exceptions) == 1:
        group = group.exceptions[0]
    return group


class Heard:
    """Notifications as they come in; a test waits for those it expects."""

    def __init__(self) -> None:
        self._messages: asyncio.Queue[Any] = asyncio.Queue()

    async def __call__(self, message: Any) -> None:
        self._messages.put_nowait(message)

    async def next(self, kind: type[Any]) -> Any:
        """The next message of a kind, passing over others."""
        while True:
            message = await self._messages.get()
            if isinstance(message, kind):
                return message

    def nothing_more(self, kind: type[Any]) -> bool:
        """True if no message of a kind has come by now."""
        waiting = [self._messages.get_nowait() for _ in range(self._messages.qsize())]
        return not any(isinstance(message, kind) for message in waiting)


async def code_of(call: Awaitable[Any]) -> int:
    """The code of the error that a call ends in."""
    with pytest.raises(MCPError) as raised:
        await call
    return raised.value.error.code


async def raw(session: ClientSession, method: str, **params: Any) -> dict[str, Any]:
    """Send any method with any params, also what the client's own calls would not."""
    request = types.Request[dict[str, Any], str](method=method, params=params)
    result = await session.send_request(request, types.Result)
    return result.model_dump(by_alias=True)


async def all_pages(
    fetch: Callable[..., Awaitable[Any]], field: str, most: int = 20
) -> list[list[Any]]:
    """Every page of a list, each with its items."""
    pages: list[list[Any]] = []
    cursor: str | None = None
    for _ in range(most):
        page = await fetch(cursor=cursor)
        pages.append(getattr(page, field))
        cursor = page.next_cursor
        if cursor is None:
            return pages
    raise AssertionError(f"more than {most} pages")
