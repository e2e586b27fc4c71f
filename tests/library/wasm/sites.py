"""Web servers on this machine, which record what a guest sends them."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager


class Site:
    """A web server that records the requests it gets."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self.answer: Callable[[str], bytes] = lambda _: response(b"fine")
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *rest = head.strip().split("\r\n")
        headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in rest)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        method, path, _ = first.split(" ")
        self.requests.append((method, path, headers, body))
        writer.write(self.answer(path))
        await writer.drain()
        writer.close()


def response(body: bytes, status: str = "200 OK", **headers: str) -> bytes:
    lines = [f"{name}: {value}" for name, value in headers.items()]
    head = "\r\n".join([f"HTTP/1.1 {status}", f"content-length: {len(body)}", *lines])
    return f"{head}\r\nconnection: close\r\n\r\n".encode() + body


@asynccontextmanager
async def site() -> AsyncGenerator[Site, None]:
    made = Site()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    async with server:
        yield made
