"""A fake endpoint of a model on a real socket: it records what it is asked, and answers as told."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple


class Asked(NamedTuple):
    """A request as it arrived."""

    line: str
    headers: dict[str, str]
    body: dict[str, Any]


class Endpoint:
    """Answers every request with `status` and `answer`; waits for `go` before, if it is set."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[Asked] = []
        self.status = "200 OK"
        self.extra = ""
        self.answer = b""
        self.go: asyncio.Event | None = None
        self.arrived: asyncio.Queue[None] = asyncio.Queue()

    def says_openai(self, content: str) -> None:
        self.answer = json.dumps({"choices": [{"message": {"content": content}}]}).encode()

    def says_gemini(self, content: str) -> None:
        found = {"candidates": [{"content": {"parts": [{"text": content}]}}]}
        self.answer = json.dumps(found).encode()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                line, *rest = head.decode().strip().split("\r\n")
                headers = {
                    key.lower(): value for key, value in (each.split(": ", 1) for each in rest)
                }
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                self.asked.append(Asked(line, headers, json.loads(body)))
                self.arrived.put_nowait(None)
                if self.go is not None:
                    await self.go.wait()
                said = f"HTTP/1.1 {self.status}\r\ncontent-length: {len(self.answer)}\r\n"
                writer.write(f"{said}{self.extra}\r\n".encode() + self.answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def endpoint() -> AsyncIterator[Endpoint]:
    """One that listens as long as it is used."""
    fake = Endpoint()
    server = await asyncio.start_server(fake.serve, "127.0.0.1", 0)
    fake.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield fake
    finally:
        if fake.go is not None:
            fake.go.set()
        server.close()
