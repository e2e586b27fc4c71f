"""Many clients at once, each on a connection of its own, and with its own session if need be."""

import re
import selectors
import socket
import time
from collections.abc import Sequence

from bench.tables.wrap_drive import ProxyWeb
from bench.web import Post
from bench.workload import WrongAnswer

_CHUNK = 1024 * 1024
_PATIENCE_S = 30.0
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class _Client:
    """One connection, with one request at a time."""

    def __init__(self, port: int, post: Post) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE_S)
        headers = {**post.headers, "Host": f"127.0.0.1:{port}", "Content-Length": len(post.body)}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._request = f"POST /mcp HTTP/1.1\r\n{lines}\r\n".encode() + post.body
        self._answer = b""

    def send(self) -> None:
        """Ask once more."""
        self._answer = b""
        self.socket.sendall(self._request)

    def receive(self) -> bool:
        """Take in what came; true once it is the whole answer."""
        data = self.socket.recv(_CHUNK)
        self._answer += data
        if not data or not b"HTTP/1.1 200".startswith(self._answer[:12]):
            raise WrongAnswer(f"to one of many: {self._answer[:200]!r}")
        head, found, body = self._answer.partition(b"\r\n\r\n")
        if not found:
            return False
        if length := _LENGTH.search(head):
            return len(body) >= int(length[1])
        return body.endswith(b"0\r\n\r\n")  # chunked


def drive(server: ProxyWeb, posts: Sequence[Post], seconds: float) -> float:
    """Let all call over and over for so long; CPU us of the proxy a call."""
    clients = [_Client(server.port, post) for post in posts]
    try:
        with selectors.DefaultSelector() as ready:
            for client in clients:
                ready.register(client.socket, selectors.EVENT_READ, client)
            _exchange(ready, clients, 0.0)  # warm up: once each
            before = server.process.cpu_s()
            done = _exchange(ready, clients, seconds)
            return (server.process.cpu_s() - before) / done * 1e6
    finally:
        for client in clients:
            client.socket.close()


def _exchange(ready: selectors.BaseSelector, clients: list[_Client], seconds: float) -> int:
    until = time.monotonic() + seconds
    done, waiting = 0, len(clients)
    for client in clients:
        client.send()
    while waiting:
        events = ready.select(_PATIENCE_S)
        if not events:
            raise WrongAnswer(f"{waiting} of {len(clients)} wait for {_PATIENCE_S:g} s")
        for key, _ in events:
            if key.data.receive():
                done += 1
                if time.monotonic() < until:
                    key.data.send()
                else:
                    waiting -= 1
    return done
