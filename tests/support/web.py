"""An app served on a real socket, and a client that speaks both eras to it."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import uvicorn

from portico.edge.transport.http_app import HttpApp
from portico.edge.transport.http_server import serve_http
from tests.support.backoff import until
from tests.support.messages import MODERN, PREFIX, initialize, modern

BOTH = "application/json, text/event-stream"
HEADERS = {"content-type": "application/json", "accept": BOTH}
NAMED = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    **dict.fromkeys(("tasks/get", "tasks/update", "tasks/cancel"), "taskId"),
}
WAIT_S = 60.0
"""How long anything may take before it counts as a hang."""

Event = dict[str, str]


class Site:
    """A served app, as its client sees it."""

    def __init__(self, app: HttpApp, port: int, client: httpx2.AsyncClient) -> None:
        self.app = app
        self.port = port
        self.client = client
        self.url = f"http://127.0.0.1:{port}"

    async def post(
        self, message: Any, headers: Mapping[str, str] | None = None, path: str = "/mcp"
    ) -> httpx2.Response:
        """Post a message, or raw bytes."""
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        return await self.client.post(
            self.url + path, content=body, headers={**HEADERS, **(headers or {})}
        )

    async def modern(
        self, message: dict[str, Any], headers: Mapping[str, str] | None = None
    ) -> httpx2.Response:
        """Post a modern request with the headers it needs."""
        return await self.post(message, {**mirrored(message), **(headers or {})})

    @asynccontextmanager
    async def streamed(
        self,
        message: dict[str, Any] | None,
        headers: Mapping[str, str] | None = None,
        method: str = "POST",
        path: str = "/mcp",
    ) -> AsyncIterator["Stream"]:
        """An open response, to be read event by event."""
        async with self.client.stream(
            method,
            self.url + path,
            content=None if message is None else json.dumps(message).encode(),
            headers={**HEADERS, **(headers or {})},
        ) as response:
            yield Stream(response)

    async def session(
        self, version: str = "2025-11-25", capabilities: dict[str, Any] | None = None
    ) -> dict[str, str]:
        """Begin a legacy session; the headers that its later requests carry."""
        response = await self.post(initialize(version, capabilities))
        assert response.status_code == 200, response.text
        headers = {"mcp-session-id": response.headers["mcp-session-id"]}
        if version >= "2025-06-18":
            headers["mcp-protocol-version"] = version
        initialized = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert (await self.post(initialized, headers)).status_code == 202
        return headers

    async def raw(self, data: bytes) -> bytes:
        """Send these very bytes on a connection of their own, and read until it closes."""
        reader, writer = await self.connect()
        writer.write(data)
        try:
            return await asyncio.wait_for(reader.read(), WAIT_S)
        finally:
            writer.close()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection of one's own."""
        return await asyncio.open_connection("127.0.0.1", self.port)


class Stream:
    """A response that is read as it comes."""

    def __init__(self, response: httpx2.Response) -> None:
        self.response = response
        self._lines = response.aiter_lines()

    async def event(self) -> Event:
        """The next event, without comments; an empty one at the end."""
        event: Event = {}
        async for line in self._lines:
            if not line and event:
                return event
            name, _, value = line.partition(":")
            if name:
                event[name] = value.removeprefix(" ")
        return event

    async def message(self) -> dict[str, Any]:
        """The next event's message, past a priming event."""
        while not (event := await self.event()).get("data"):
            assert event, "the stream ended"
        message: dict[str, Any] = json.loads(event["data"])
        return message

    async def events(self) -> list[Event]:
        """All that are left."""
        found = []
        while event := await self.event():
            found.append(event)
        return found

    async def line(self) -> str:
        """The next line, whatever it is."""
        return await anext(self._lines)


@asynccontextmanager
async def serving(
    app: HttpApp, *, drain_s: float = 0.1, through_asgi: bool = False
) -> AsyncIterator[Site]:
    """Serve an app on a free port of this machine for as long as the block runs; through ASGI, with
    uvicorn."""
    if through_asgi:
        async with under_uvicorn(app) as port, httpx2.AsyncClient(timeout=WAIT_S) as client:
            yield Site(app, port, client)
        return
    bound: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    serve = serve_http(app, drain_s=drain_s, ready=bound.set_result, stop=stop)
    task = asyncio.create_task(serve)
    await asyncio.wait((task, bound), return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        await task
    try:
        async with httpx2.AsyncClient(timeout=WAIT_S) as client:
            yield Site(app, bound.result(), client)
    finally:
        stop.set()
        await task


@asynccontextmanager
async def under_uvicorn(app: Any) -> AsyncIterator[int]:
    """Serve an ASGI app with uvicorn; yields its port."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        app,
        http="httptools",
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="on",
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve([listener]))
    try:
        await until(lambda: server.started or task.done())
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await task


def mirrored(message: dict[str, Any]) -> dict[str, str]:
    """The headers that repeat a modern body."""
    headers = {"mcp-protocol-version": MODERN, "mcp-method": message["method"]}
    if message["method"] in NAMED:
        headers["mcp-name"] = message["params"][NAMED[message["method"]]]
    return headers


def post_bytes(
    message: dict[str, Any],
    headers: Mapping[str, str] | None = None,
    *,
    path: str = "/mcp",
    close: bool = False,
) -> bytes:
    """A POST as it goes over the wire."""
    body = json.dumps(message).encode()
    lines = {"host": "localhost", **HEADERS, "content-length": str(len(body)), **(headers or {})}
    if close:
        lines["connection"] = "close"
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body


def listen(id: Any = 1, **wanted: Any) -> dict[str, Any]:
    """A `subscriptions/listen` request."""
    return modern("subscriptions/listen", {"notifications": wanted}, id=id)


def tool_call(name: str, id: Any = 1, **arguments: Any) -> dict[str, Any]:
    """A legacy call of a tool."""
    params = {"name": name, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}


def modern_call(name: str, id: Any = 1, **arguments: Any) -> dict[str, Any]:
    """A modern call of a tool with a progress token."""
    message = modern("tools/call", {"name": name, "arguments": arguments}, id=id)
    message["params"]["_meta"] |= {"progressToken": "p", PREFIX + "logLevel": "debug"}
    return message


async def soon(event: asyncio.Event) -> None:
    """Wait for an event that must come."""
    await asyncio.wait_for(event.wait(), WAIT_S)
