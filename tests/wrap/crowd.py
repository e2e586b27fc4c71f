"""Clients by the hundred: HTTP/1.1 by hand on kept connections, in both eras."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from tests.support.oracle import MODERN
from tests.support.running import WAIT_S, Child, initialize_params, modern_meta
from tests.wrap.faults import command_line
from tests.wrap.standing import children, until, wrap_command

LEGACY = "2025-11-25"
_URL = re.compile(r"serving http://127\.0\.0\.1:(\d+)/mcp")
_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)\r\n", re.IGNORECASE)
_SESSION = re.compile(rb"\r\nmcp-session-id: ([^\r]+)\r\n", re.IGNORECASE)


class Served(Child):
    """A running `portico wrap --http` at a port of its own."""

    def __init__(self, home: Path, *words: str) -> None:
        options = ("--http", "127.0.0.1:0", "--auth", "none", "--drain", "1", *words)
        super().__init__(wrap_command(home, *options))
        self.home = home
        until(lambda: _URL.search(self.stderr()), "it does not serve")
        found = _URL.search(self.stderr())
        assert found is not None
        self.port = int(found[1])

    def upstreams(self, rig: str) -> list[int]:
        """The processes of the server behind it."""
        return [pid for pid in children(self.process.pid) if rig in command_line(pid)]

    def files(self) -> int:
        """How many files, pipes and sockets it has open."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def stop(self) -> int:
        """End it, and see that nothing of it is left."""
        kin = children(self.process.pid)
        code = super().stop()
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in kin), "it left a process")
        return code


class Speaker:
    """One client on one connection."""

    def __init__(self, port: int, *, modern: bool) -> None:
        self.port = port
        self.modern = modern
        self.session = b""

    async def open(self) -> None:
        """Connect, and shake hands where that is done."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self.port)
        if self.modern or self.session:
            return
        hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize"}
        self.send({**hello, "params": initialize_params(LEGACY)})
        head, answer = await self.receive()
        assert "result" in answer, answer
        found = _SESSION.search(head)
        assert found is not None
        self.session = found[1]
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        await self.receive()

    async def close(self) -> None:
        """Disconnect, even with pending calls."""
        self._writer.close()
        await self._writer.wait_closed()

    def again(self) -> "Speaker":
        """The same client, for another connection."""
        other = Speaker(self.port, modern=self.modern)
        other.session = self.session
        return other

    async def leave(self) -> None:
        """End the session."""
        self._writer.write(
            b"DELETE /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\nmcp-session-id: %s\r\n\r\n" % self.session
        )
        await self.receive()

    def call(self, id: int, tool: str, arguments: dict[str, Any], **meta: Any) -> None:
        """Send the call of a tool."""
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        meta = {**(modern_meta() if self.modern else {}), **meta}
        if meta:
            params["_meta"] = meta
        message = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
        self.send(message, b"mcp-method: tools/call\r\nmcp-name: %s\r\n" % tool.encode())

    def send(self, message: dict[str, Any], mirrored: bytes = b"") -> None:
        """Post a message."""
        body = msgspec.json.encode(message)
        if self.modern:
            mirrored += b"mcp-protocol-version: %s\r\n" % MODERN.encode()
        elif self.session:
            mirrored = b"mcp-protocol-version: %s\r\n" % LEGACY.encode()
            mirrored += b"mcp-session-id: %s\r\n" % self.session
        else:
            mirrored = b""
        self._writer.write(
            b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
            b"accept: application/json, text/event-stream\r\n"
            b"%scontent-length: %d\r\n\r\n%s" % (mirrored, len(body), body)
        )

    async def receive(self) -> tuple[bytes, dict[str, Any]]:
        """The head of the next response, and the one message in its body, if there is one."""
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if length is not None:
            body = await self._reader.readexactly(int(length[1]))
        elif head.startswith(b"HTTP/1.1 204 "):
            body = b""
        else:
            body = b"".join([chunk async for chunk in self._chunks()])
        if b"text/event-stream" in head:
            events = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: {")]
            assert len(events) <= 1, body
            body = b"".join(events)
        message: dict[str, Any] = msgspec.json.decode(body) if body else {}
        return head, message

    async def _chunks(self) -> AsyncIterator[bytes]:
        while size := int(await self._reader.readline(), 16):
            yield (await self._reader.readexactly(size + 2))[:-2]
        await self._reader.readexactly(2)

    async def called(self, id: int, tool: str, text: str, **meta: Any) -> dict[str, Any]:
        """The one answer to a call."""
        self.call(id, tool, {"text": text}, **meta)
        async with asyncio.timeout(2 * WAIT_S):
            _, answer = await self.receive()
        assert answer.get("id") == id, answer
        return answer


@asynccontextmanager
async def speaking(
    port: int, many: int, eras: tuple[bool, ...] = (False, True)
) -> AsyncIterator[list[Speaker]]:
    """Start a number of clients; by default, every other one is modern."""
    speakers = [Speaker(port, modern=eras[number % len(eras)]) for number in range(many)]
    try:
        for speaker in speakers:
            await speaker.open()
        yield speakers
    finally:
        for speaker in speakers:
            await speaker.close()
