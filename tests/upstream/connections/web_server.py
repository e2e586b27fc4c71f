"""An HTTP server that sends exactly the bytes of a test."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
from msgspec import Struct


class Asked(Struct):
    """One HTTP request."""

    verb: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def message(self) -> dict[str, Any]:
        """The JSON-RPC message in it; empty if there is none."""
        message: dict[str, Any] = msgspec.json.decode(self.body) if self.body else {}
        return message

    @property
    def method(self) -> str:
        """The JSON-RPC method, or the verb of a request without a message."""
        method: str = self.message.get("method", "answer") if self.body else self.verb
        return method


Talk = Callable[[Asked, asyncio.StreamWriter], Awaitable[None]]


class WebServer:
    """Keeps all requests; a test's own coroutine writes the responses."""

    def __init__(self, talk: Talk) -> None:
        self.asked: list[Asked] = []
        self.url = ""
        self._talk = talk

    def methods(self) -> list[str]:
        return [asked.method for asked in self.asked]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                verb, path, _ = head[0].split(" ")
                pairs = (line.partition(":") for line in head[1:] if line)
                headers = {name.lower(): value.strip() for name, _, value in pairs}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                asked = Asked(verb, path, headers, body)
                self.asked.append(asked)
                await self._talk(asked, writer)
                await writer.drain()
                if writer.is_closing():
                    return


@asynccontextmanager
async def web_server(talk: Talk) -> AsyncGenerator[WebServer, None]:
    """A server on a free port."""
    server = WebServer(talk)
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await server.serve(reader, writer)
        finally:
            tasks.discard(task)
            writer.close()

    listener = await asyncio.start_server(connected, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/mcp"
    try:
        yield server
    finally:
        listener.close()
        for task in tuple(tasks):
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def reply(
    writer: asyncio.StreamWriter,
    status: int,
    body: Any = b"",
    kind: str = "application/json",
    **headers: str,
) -> None:
    """A whole answer."""
    raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
    more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    head = f"HTTP/1.1 {status} Said\r\ncontent-type: {kind}\r\ncontent-length: {len(raw)}\r\n{more}"
    writer.write(f"{head}\r\n".encode() + raw)


def stream(writer: asyncio.StreamWriter, *parts: bytes, **headers: str) -> None:
    """The beginning of a stream of events; it ends when the writer is closed."""
    more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    head = f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n{more}\r\n"
    writer.write(head.encode() + b"".join(parts))


def event(message: Any, id: str = "", kind: str = "") -> bytes:
    """One event with a message."""
    data = message if isinstance(message, bytes) else msgspec.json.encode(message)
    lines = [f"id: {id}\n"] if id else []
    lines += [f"event: {kind}\n"] if kind else []
    return "".join(lines).encode() + b"data: " + data + b"\n\n"
