"""Servers to be a client of: scripted ones in memory, and misbehaving child processes."""

import asyncio
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from portico.core.model.version import Version
from portico.upstream.wires.child_wire import Command
from portico.upstream.wires.wire import Failure, Outgoing, Receiver, to_bytes

SERVERS = Path(__file__).parent / "servers"
WAIT_S = 60.0
"""How long anything may take before it counts as a hang."""

Message = dict[str, Any]
Script = Callable[[Message], Iterable[Message | bytes] | None]
"""Returns the messages that a scripted server sends in response to one."""

LEGACY = "2025-11-25"
MODERN = "2026-07-28"


def bad_server(mode: str, *args: str, **options: Any) -> Command:
    """A child that misbehaves in the named way."""
    script = str(SERVERS / "bad_server.py")
    return Command((sys.executable, "-I", "-S", script, mode, *args), title=mode, **options)


class FakeWire:
    """A wire to a script. It keeps sent messages, and delivers those that the script returns."""

    transport = "fake"

    def __init__(self, script: Script, has_headers: bool = False) -> None:
        self.has_headers = has_headers
        self.script = script
        self.sent: list[Message] = []
        self.headers: list[dict[str, str]] = []
        self.abandoned: list[bytes] = []
        self.settled: Version | None = None
        self.closed = False
        self.receiver: Receiver | None = None
        self._arrived = asyncio.Condition()

    async def open(self, receiver: Receiver) -> None:
        self.receiver = receiver

    async def send(self, message: Outgoing) -> None:
        decoded: Message = msgspec.json.decode(to_bytes(message.data))
        self.sent.append(decoded)
        self.headers.append(dict(message.headers))
        async with self._arrived:
            self._arrived.notify_all()
        for reply in self.script(decoded) or ():
            self.deliver(reply)

    def deliver(self, message: Message | bytes) -> None:
        assert self.receiver is not None
        raw = message if isinstance(message, bytes) else msgspec.json.encode(message)
        asyncio.get_running_loop().call_soon(self.receiver.received, raw)

    def fail(self, id: int, failure: Failure) -> None:
        assert self.receiver is not None
        asyncio.get_running_loop().call_soon(self.receiver.failed, str(id).encode(), failure)

    def lose(self, failure: Failure) -> None:
        assert self.receiver is not None
        asyncio.get_running_loop().call_soon(self.receiver.lost, failure)

    def send_now(self, message: Outgoing) -> bool:
        return False

    def abandon(self, id: bytes) -> None:
        self.abandoned.append(id)

    def settle(self, version: Version) -> None:
        self.settled = version

    def last_output(self) -> str:
        return ""

    async def close(self) -> None:
        self.closed = True

    def is_closed(self) -> bool:
        return self.closed

    def methods(self) -> list[str]:
        """The methods sent, in order; an answer of ours is shown as `answer`."""
        return [message.get("method", "answer") for message in self.sent]

    async def until(self, method: str, times: int = 1) -> Message:
        """Wait until a message of this method was sent; the latest one."""
        async with asyncio.timeout(WAIT_S), self._arrived:
            await self._arrived.wait_for(lambda: self.methods().count(method) >= times)
        return [m for m in self.sent if m.get("method", "answer") == method][-1]


class Fake(Struct):
    """An address whose wires are given one after the other."""

    wires: list[Any]
    old: Any = None
    name: str = "fake"

    def wire(self) -> Any:
        return self.wires.pop(0)

    def older(self) -> Any:
        return self.old


def result(message: Message, value: Any) -> Message:
    return {"jsonrpc": "2.0", "id": message["id"], "result": value}


def error(message: Message, code: int, text: str = "no", data: Any = None) -> Message:
    body = {"code": code, "message": text} | ({"data": data} if data is not None else {})
    return {"jsonrpc": "2.0", "id": message["id"], "error": body}


def legacy(message: Message, version: str = LEGACY, **capabilities: Any) -> list[Message]:
    """The part of a legacy server that opens a conversation."""
    if message.get("method") == "initialize":
        server = {"name": "old", "version": "1"}
        handshake = {"protocolVersion": version, "capabilities": capabilities, "serverInfo": server}
        return [result(message, handshake)]
    if "id" in message and "method" in message:
        return [error(message, -32601)]
    return []


def modern(
    message: Message, versions: tuple[str, ...] = (MODERN,), **capabilities: Any
) -> list[Message]:
    """The part of a modern server that opens a conversation."""
    if message.get("method") == "server/discover":
        found = {
            "resultType": "complete",
            "supportedVersions": list(versions),
            "capabilities": capabilities,
            "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "new", "version": "2"}},
        }
        return [result(message, found)]
    return [error(message, -32601)] if "id" in message else []
