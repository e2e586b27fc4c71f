"""The server behind every proxy, over HTTP."""

import asyncio
import sys

from bench.servers.upstream_server import answer


class _Web(asyncio.Protocol):
    """One connection; every POST is one message, without authentication."""

    def __init__(self) -> None:
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._out = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        while (end := self._data.find(b"\r\n\r\n")) >= 0:
            head = self._data[:end].lower()
            _, _, length = head.partition(b"content-length:")
            until = end + 4 + int(length.partition(b"\r\n")[0] or 0)
            if len(self._data) < until:
                return
            body, self._data = self._data[end + 4 : until], self._data[until:]
            self._out.write(_response(body if head.startswith(b"post") else None))


def _response(body: bytes | None) -> bytes:
    if body is None:  # no stream to listen to, and no session to end
        return b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n"
    found = answer(body)
    if not found:
        return b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
    return head + str(len(found)).encode() + b"\r\n\r\n" + found


async def serve_http(port: int) -> None:
    """Serve all connections."""
    server = await asyncio.get_running_loop().create_server(_Web, "127.0.0.1", port)
    await server.serve_forever()


asyncio.run(serve_http(int(sys.argv[2])))
