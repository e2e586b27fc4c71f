"""The legacy Streamable HTTP transport under the scripted upstreams, by hand."""

import contextlib
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterable
from typing import Any, BinaryIO

from tests.rigs.wire import Call, Handle, take, write_all


class HttpCall(Call):
    """A message from the body of a POST; replies go out on its response."""

    def __init__(self, raw: bytes, sock: socket.socket, door: "Door", session: str) -> None:
        super().__init__(raw)
        self.sock, self.door, self.session = sock, door, session
        self._opened = self.answered = self.closed = False

    def open(self) -> None:
        """Send the head of the answer, once."""
        if not self._opened:
            self._opened = True
            kind = b"application/json" if self.door.json else b"text/event-stream"
            session = b"Mcp-Session-Id: %s\r\n" % self.session.encode() if self.session else b""
            self.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\n%s"
                b"Cache-Control: no-store\r\nTransfer-Encoding: chunked\r\n\r\n" % (kind, session)
            )

    def stream(self, parts: Iterable[bytes], end: bytes = b"\n") -> None:
        """Send one message, as an event or, one after the other, as the JSON body."""
        self.open()
        event = not self.door.json
        send_chunks(self.sock, [b"data: "] if event else [])
        send_chunks(self.sock, parts)
        send_chunks(self.sock, [end + end] if event and end else [])

    def burst(self, messages: list[bytes]) -> None:
        """Send many messages in one chunk."""
        self.open()
        send_chunks(self.sock, [b"".join(b"data: %s\n\n" % message for message in messages)])

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification, for which a JSON body has no room."""
        if not self.door.json:
            super().notify(method, params)

    def broadcast(self, raw: bytes) -> None:
        """Send to the stream of every session; to our own also when it has none."""
        for session in list(self.door.streams):
            self._send_to(session, raw)
        if self.session not in self.door.streams and not self.door.json:
            self.emit(raw)

    def question(self, raw: bytes) -> None:
        """Send a request, on the session's own stream if a JSON body has no room for it."""
        if self.door.json:
            self._send_to(self.session, raw)
        else:
            self.emit(raw)

    def _send_to(self, session: str, raw: bytes) -> None:
        with self._lock, contextlib.suppress(OSError):
            send_chunks(self.door.streams[session], [b"data: " + raw + b"\n\n"])

    def write(self, data: bytes) -> None:
        """Send bytes past all framing."""
        self.sock.sendall(data)

    def reset(self) -> None:
        """Reset the connection."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.closed = True

    def finish(self) -> None:
        """End the answer; a request that got none is left waiting, for as long as it likes."""
        if self.closed or self.answered:
            return
        if self._opened:
            self.write(b"0\r\n\r\n")
        elif self.id is None or not self.method:
            self.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
        else:
            wait_for_close(self.sock)
            self.closed = True


def send_chunks(sock: socket.socket, parts: Iterable[bytes]) -> None:
    """Send each part as a chunk."""
    for part in parts:
        sock.sendall(b"%x\r\n%s\r\n" % (len(part), part))


def wait_for_close(sock: socket.socket) -> None:
    """Wait until the other side has hung up."""
    with contextlib.suppress(OSError):
        while sock.recv(65536):
            pass


class Door:
    """A listener of the Streamable HTTP transport, with sessions, or without as the modern one."""

    def __init__(
        self,
        handle: Handle,
        heard: Callable[[bytes], None] = lambda raw: None,
        *,
        heads: Callable[[bytes], None] = lambda raw: None,
        json: bool = False,
        lasts: int | None = None,
        modern: bool = False,
    ) -> None:
        """With `json`, answers are no streams; `lasts` is how many requests a session outlives;
        with `modern`, no session is asked for."""
        self._handle, self._heard, self._heads = handle, heard, heads
        self.json = json
        self._lasts = lasts
        self._modern = modern
        self._sessions: dict[str, int] = {}
        self.streams: dict[str, socket.socket] = {}

    def serve(self) -> None:
        """Print the port, then serve for ever."""
        listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        write_all(1, b"%d\n" % listener.getsockname()[1])
        while True:
            sock, _ = listener.accept()
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._converse, args=(sock,), daemon=True).start()

    def _converse(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError), sock, sock.makefile("rb") as file:
            while head := _read_head(file):
                self._heads(head)
                verb = head.partition(b" ")[0]
                headers = _headers(head)
                body = file.read(int(headers.get("content-length", "0")))
                if not self._answer(sock, verb, headers.get("mcp-session-id", ""), body):
                    return

    def _answer(self, sock: socket.socket, verb: bytes, session: str, body: bytes) -> bool:
        """Answer one request; False if the connection is over."""
        if verb == b"POST":
            return self._post(sock, session, body)
        if session not in self._sessions:
            _status(sock, b"404 Not Found" if session else b"400 Bad Request")
        elif verb == b"DELETE":
            del self._sessions[session]
            _status(sock, b"200 OK")
        else:
            sock.sendall(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n"
            )
            self.streams[session] = sock
            # After this, the client misses no message.
            send_chunks(sock, [b": open\n\n"])
            wait_for_close(sock)
            self.streams.pop(session, None)
            return False
        return True

    def _post(self, sock: socket.socket, session: str, body: bytes) -> bool:
        self._heard(body)
        try:
            call = HttpCall(body, sock, self, session)
        except (ValueError, RecursionError):
            _status(sock, b"400 Bad Request")
            return True
        if call.method == "initialize":
            call.session = f"session-{os.getpid()}-{len(self._sessions)}-{os.urandom(4).hex()}"
            self._sessions[call.session] = 0
        elif not self._admits(session):
            _status(sock, b"404 Not Found" if session else b"400 Bad Request")
            return True
        take(call, self._handle)
        call.finish()
        return not call.closed

    def _admits(self, session: str) -> bool:
        if session not in self._sessions:
            return self._modern
        self._sessions[session] += 1
        if self._lasts is not None and self._sessions[session] > self._lasts:
            del self._sessions[session]
            return False
        return True


def _read_head(file: BinaryIO) -> bytes:
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = file.readline(65536)
        if not line:
            return b""
        head += line
    return head


def _headers(head: bytes) -> dict[str, str]:
    lines = head.decode("latin-1").split("\r\n")[1:]
    pairs = (line.partition(":") for line in lines if line)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def _status(sock: socket.socket, status: bytes) -> None:
    sock.sendall(b"HTTP/1.1 %s\r\nContent-Length: 0\r\n\r\n" % status)
