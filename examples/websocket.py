"""MCP over WebSocket, as a transport of your own.

    portico run server.py --transport examples/websocket.py --listen 8765

One JSON-RPC message per text frame, with the subprotocol `mcp`. It needs the package `websockets`.
It has no authentication: it listens on loopback only, and no web page can connect to it unless its
origin is in `ORIGINS`.
"""

import asyncio
import contextlib
import sys
from ipaddress import ip_address

from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as listen
from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode
from websockets.typing import Origin, Subprotocol

from portico import Connection, Endpoint, PorticoError, parse_address

ADDRESS = "127.0.0.1:8765"
ORIGINS: list[Origin | None] = [None]
"""None stands for clients that are not browsers; add `Origin("https://example.com")` for a page."""
MAX_MESSAGE = 4 * 1024 * 1024
"""A longer message gets an error."""
MAX_FRAME = 16 * 1024 * 1024
"""A still longer one ends the connection, with code 1009."""
HIGH_WATER = 1024 * 1024
"""Unread bytes at which handlers wait and no more requests are read."""
MAX_UNREAD = 64 * 1024 * 1024
"""Unread bytes at which the client is disconnected."""
OPEN_S, FLUSH_S, CLOSE_S = 5.0, 5.0, 2.0
"""The time for a handshake, for the last responses after a drain, and for the last frame."""


async def serve(
    endpoint: Endpoint, address: str | None, stop: asyncio.Event, drain_s: float
) -> None:
    """Serve clients at `[HOST:]PORT` until `stop` is set, then let their calls finish."""
    host, port = parse_address(address or ADDRESS)
    if not _is_loopback(host):
        why = "this transport has no authentication; use 127.0.0.1"
        raise PorticoError(f"cannot listen on {host}: {why}")
    clients: set[Client] = set()

    async def talk(socket: ServerConnection) -> None:
        client = Client(endpoint, socket)
        clients.add(client)
        try:
            await client.talk()
        finally:
            clients.discard(client)

    try:
        server = await listen(
            talk,
            host,
            port,
            origins=ORIGINS,
            subprotocols=[Subprotocol("mcp")],
            max_size=MAX_FRAME,
            compression=None,
            open_timeout=OPEN_S,
            close_timeout=CLOSE_S,
        )
    except OSError as error:
        why = f"{error.strerror}; choose another address with --listen"
        raise PorticoError(f"cannot listen: {why}") from None
    async with server:
        for socket in server.sockets:
            name, number, *_ = socket.getsockname()
            shown = f"[{name}]" if ":" in name else name
            print(f"serving ws://{shown}:{number}", file=sys.stderr, flush=True)
        await stop.wait()
        server.close(close_connections=False)  # accept no more clients
        await asyncio.gather(*(client.end(drain_s) for client in clients))


class Client:
    """One client: its WebSocket, its connection, and the messages that wait for it."""

    def __init__(self, endpoint: Endpoint, socket: ServerConnection) -> None:
        self._socket = socket
        self._connection = Connection(endpoint, self._send, max_message=MAX_MESSAGE)
        self._outgoing: asyncio.Queue[bytes] = asyncio.Queue()
        self._unread = 0
        self._keeps_up = asyncio.Event()
        self._keeps_up.set()
        self._writing: asyncio.Task[None] | None = None

    async def talk(self) -> None:
        """Carry messages both ways until the client disconnects or stops reading."""
        self._writing = asyncio.create_task(self._write())
        reading = asyncio.create_task(self._read())
        try:
            await asyncio.wait((reading, self._writing), return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                reading.result()  # raises what should not have happened
        finally:
            self._connection.disconnected()
            reading.cancel()
            self._writing.cancel()
            await asyncio.gather(reading, self._writing, return_exceptions=True)
        # It is still open only if too much output was left unread.
        await self._socket.close(CloseCode.POLICY_VIOLATION, "too much unread output")

    async def end(self, within_s: float) -> None:
        """Let the running calls finish, send their responses, and close the connection."""
        await self._connection.drain(within_s)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_S):
                await self._outgoing.join()
        await self._socket.close(CloseCode.GOING_AWAY)

    async def _read(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            while True:
                self._connection.receive(await self._socket.recv(decode=False))
                await self._keeps_up.wait()

    def _send(self, message: bytes) -> None:
        self._outgoing.put_nowait(message)
        self._unread += len(message)
        if self._unread > MAX_UNREAD and self._writing is not None:
            self._writing.cancel()
        elif self._unread > HIGH_WATER:
            self._keeps_up.clear()
            self._connection.pause()

    async def _write(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            while True:
                message = await self._outgoing.get()
                await self._socket.send(message, text=True)
                self._outgoing.task_done()
                self._unread -= len(message)
                if self._unread <= HIGH_WATER and not self._keeps_up.is_set():
                    self._keeps_up.set()
                    self._connection.resume()


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
