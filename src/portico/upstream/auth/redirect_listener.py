"""Waits for the browser on 127.0.0.1: one path, one response, and a page in return.

A login that a client's link begins has a second path: that of the link, which sends the browser on.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress

from portico.upstream.auth.client_identity import CALLBACK
from portico.upstream.auth.landing_page import failure_page, success_page
from portico.upstream.auth.login_link import LoginLink, is_link

_HEAD_S = 10.0
_MAX_HEAD = 32 * 1024
_MAX_CONNECTIONS = 32
_PAGE_S = 30.0
"""How long a browser waits for its page: the code is exchanged first."""
_HEADERS = (
    "content-type: text/html; charset=utf-8\r\ncache-control: no-store\r\nconnection: close\r\n"
    "content-security-policy: default-src 'none'; style-src 'unsafe-inline'\r\n"
    "referrer-policy: no-referrer\r\nx-content-type-options: nosniff\r\n"
)


class RedirectListener:
    """Listens for the redirect of one login, until it is closed."""

    def __init__(self, server: str, link: LoginLink | None = None) -> None:
        """`server` is the name on the page; `link` begins the login, if a client got one."""
        self._server_name = server
        self._link = link
        self.listening = asyncio.Event()
        """Set as soon as a browser can come."""
        self._socket: socket.socket | None = None
        self._listening: asyncio.Server | None = None
        self._arrived: asyncio.Future[str] | None = None
        self._page: asyncio.Future[bytes] | None = None
        self._connections: set[asyncio.Task[None]] = set()

    def bind(self, port: int) -> int:
        """Listen at this port, or at any if it is 0; return it, 0 if it is taken."""
        if self._socket is not None:
            self._socket.close()
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind(("127.0.0.1", port))
            made.listen(_MAX_CONNECTIONS)
        except OSError:
            made.close()
            self._socket = None
            return 0
        made.setblocking(False)
        self._socket = made
        found: int = made.getsockname()[1]
        return found

    @property
    def origin(self) -> str:
        """The origin of its URLs, once it is bound."""
        assert self._socket is not None
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    async def wait(self, is_expected: Callable[[str], bool]) -> str:
        """Return the URL of the first redirect that is expected; others are refused."""
        assert self._socket is not None
        if self._listening is not None:
            self._listening.close()
            self.answer(why="The login starts again, on another page.")
        loop = asyncio.get_running_loop()
        self._arrived, self._page = loop.create_future(), loop.create_future()
        self._is_expected = is_expected
        self._listening = await asyncio.start_server(
            self._serve, sock=self._socket.dup(), limit=_MAX_HEAD
        )
        self.listening.set()
        return await self._arrived

    def answer(self, account: str = "", why: str = "") -> None:
        """Send the page to the browser that waits: of a success, or why the login failed."""
        if self._page is not None and not self._page.done():
            name = self._server_name
            self._page.set_result(failure_page(name, why) if why else success_page(name, account))

    async def close(self) -> None:
        """Stop listening, once the page is sent."""
        if self._page is not None and not self._page.done():
            self._page.cancel()
        if self._listening is not None:
            self._listening.close()
        if self._connections:
            await asyncio.wait(self._connections, timeout=2.0)
        for task in tuple(self._connections):
            task.cancel()
        if self._socket is not None:
            self._socket.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                async with asyncio.timeout(_HEAD_S):
                    head = await reader.readuntil(b"\r\n\r\n")
                status, page, *more = await self._respond(head)
                fields = "".join(f"{one}\r\n" for one in more)
                length = f"content-length: {len(page)}\r\n"
                line = f"HTTP/1.1 {status}\r\n{length}{fields}{_HEADERS}\r\n"
                writer.write(line.encode() + page)
                await writer.drain()
        except TimeoutError:
            pass  # it sent nothing, or its page was never made
        finally:
            writer.close()

    async def _respond(self, head: bytes) -> "tuple[str, bytes, *tuple[str, ...]]":
        """Return the status, the page and further headers."""
        line, _, fields = head.decode("latin-1").partition("\r\n")
        method, _, rest = line.partition(" ")
        target = rest.partition(" ")[0]
        path = target.partition("?")[0]
        if method == "GET" and is_link(path):
            return self._opened(path, _cookies(fields))
        if method != "GET" or path != CALLBACK or self._socket is None:
            return "404 Not Found", self._failure("This is not the page of a login.")
        assert self._arrived is not None
        assert self._page is not None
        if self._arrived.done() or not self._is_expected(self.origin + target):
            why = "This is not the response to the login that is waiting."
            return "400 Bad Request", self._failure(why)
        if self._link is not None and not self._link.is_same_browser(_cookies(fields)):
            why = "This login was begun in another browser, or by another person."
            return "400 Bad Request", self._failure(why)
        self._arrived.set_result(self.origin + target)
        async with asyncio.timeout(_PAGE_S):
            with suppress(asyncio.CancelledError):
                return "200 OK", await asyncio.shield(self._page)
        return "400 Bad Request", self._failure("The login was interrupted.")

    def _opened(self, path: str, cookies: str) -> "tuple[str, bytes, *tuple[str, ...]]":
        """Send the first browser that opens the link to the page of the login."""
        link = self._link
        if link is None or not link.is_at(path):
            why = "This link is not valid any more. Call the tool again for another one."
            return "404 Not Found", self._failure(why)
        fields = link.open(cookies)
        if fields is None:
            why = "This link was opened already. Each one works once; call the tool again later."
            return "410 Gone", self._failure(why)
        return "302 Found", b"", *fields

    def _failure(self, why: str) -> bytes:
        return failure_page(self._server_name, why)


def _cookies(fields: str) -> str:
    """Return the cookies in the header fields of a request."""
    for field in fields.split("\r\n"):
        name, _, value = field.partition(":")
        if name.strip().lower() == "cookie":
            return value.strip()
    return ""
