"""The CONNECT request that opens a tunnel through a proxy, and its response (RFC 9110)."""

import asyncio

from portico.core.http1.errors import ConnectError, error_text
from portico.core.http1.url import Origin

MAX_HEAD = 64 * 1024
_END = b"\r\n\r\n"


class Tunnel(asyncio.Protocol):
    """The protocol of a connection to a proxy until the tunnel is open."""

    def __init__(self, opened: asyncio.Future[None]) -> None:
        """Complete `opened` once the tunnel is open or refused."""
        self.opened = opened
        self._head = b""

    def request(self, origin: Origin, login: str) -> bytes:
        """Return the bytes of the CONNECT request."""
        lines = [f"CONNECT {origin.authority} HTTP/1.1", f"Host: {origin.authority}"]
        lines += [f"Proxy-Authorization: {login}"] if login else []
        return "\r\n".join((*lines, "", "")).encode()

    def data_received(self, data: bytes) -> None:
        """Add data to the response."""
        self._head += data
        if self.opened.done():
            return
        head, end, rest = self._head.partition(_END)
        if end:
            self._check(head, rest)
        elif len(self._head) > MAX_HEAD:
            self._fail(f"its proxy sent headers longer than {MAX_HEAD} bytes")

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the tunnel, unless it was open."""
        why = f": {error_text(exc)}" if exc is not None else ""
        self._fail(f"its proxy closed the connection{why}")

    def _check(self, head: bytes, rest: bytes) -> None:
        line = head.partition(b"\r\n")[0].decode("latin-1")
        version, _, outcome = line.partition(" ")
        status = outcome[:3]
        if not (version.startswith("HTTP/1.") and status.isdigit()):
            self._fail("its proxy did not send an HTTP response")
        elif not status.startswith("2"):
            self._fail(f"its proxy returned HTTP {outcome[:100].strip()}")
        elif rest:
            self._fail("its proxy sent unexpected data after its response")
        else:
            self.opened.set_result(None)

    def _fail(self, why: str) -> None:
        if not self.opened.done():
            self.opened.set_exception(ConnectError.because(why))
            self.opened.exception()  # marked as retrieved: the waiting task may be cancelled
