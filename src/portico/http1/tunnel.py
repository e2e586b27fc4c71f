"""How a proxy is asked to carry a connection, and what it answers (RFC 9110, CONNECT)."""

import asyncio

from portico.http1.errors import ConnectError, words
from portico.http1.url import Origin

_LONGEST = 64 * 1024
_END = b"\r\n\r\n"


class Tunnel(asyncio.Protocol):
    """The first words with a proxy; whoever takes over from it speaks to the origin."""

    def __init__(self, opened: asyncio.Future[None]) -> None:
        """`opened` is done once the proxy carries, or says why it does not."""
        self.opened = opened
        self._head = b""

    def request(self, origin: Origin, login: str) -> bytes:
        """What to send."""
        lines = [f"CONNECT {origin.authority} HTTP/1.1", f"Host: {origin.authority}"]
        lines += [f"Proxy-Authorization: {login}"] if login else []
        return "\r\n".join((*lines, "", "")).encode()

    def data_received(self, data: bytes) -> None:
        """Some of its answer."""
        self._head += data
        if self.opened.done():
            return
        head, end, rest = self._head.partition(_END)
        if end:
            self._judge(head, rest)
        elif len(self._head) > _LONGEST:
            self._refuse("its proxy sends headers without end")

    def connection_lost(self, exc: Exception | None) -> None:
        """It has hung up."""
        said = f": {words(exc)}" if exc is not None else ""
        self._refuse(f"its proxy closed the connection{said}")

    def _judge(self, head: bytes, rest: bytes) -> None:
        line = head.partition(b"\r\n")[0].decode("latin-1")
        version, _, said = line.partition(" ")
        status = said[:3]
        if not (version.startswith("HTTP/1.") and status.isdigit()):
            self._refuse("its proxy speaks no HTTP")
        elif not status.startswith("2"):
            self._refuse(f"its proxy answered HTTP {said[:100].strip()}")
        elif rest:
            self._refuse("its proxy said more than it was asked")
        else:
            self.opened.set_result(None)

    def _refuse(self, why: str) -> None:
        if not self.opened.done():
            self.opened.set_exception(ConnectError.because(why))
            self.opened.exception()  # looked at: whoever waited may have been cancelled
