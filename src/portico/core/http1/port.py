"""The port between an HTTP server and what it serves: a head, a body and a writer.

`respond` gets the head of a request, in the words of ASGI, and the writer of its response. It
returns the receiver of the body, or None if it does not need one.
"""

from collections.abc import MutableMapping
from typing import Any, Protocol

Scope = MutableMapping[str, Any]
"""The head of a request as the scope of ASGI: `method`, `path`, `headers` and more."""
Headers = tuple[tuple[bytes, bytes], ...]

JSON_TYPE = (b"content-type", b"application/json")
JSON_HEADERS: Headers = (JSON_TYPE,)
TEXT_TYPE = (b"content-type", b"text/plain; charset=utf-8")
CLOSE = (b"connection", b"close")
REFUSALS = {
    400: b"the request is not valid HTTP/1.1",
    405: b"CONNECT is not supported",
    408: b"the request did not arrive in time",
    414: b"the target is too long",
    431: b"the headers are too large",
    503: b"too many requests were sent at once",
    505: b"the HTTP version is not supported: use 1.1",
}
"""The refusals that a server sends itself, as text."""


class RespondingCall(Protocol):
    """A call that writes a response, as the writer sees it."""

    def on_disconnect(self) -> None:
        """Handle the client's disconnect."""


class ResponseWriter(Protocol):
    """The response to one request; only `wait_writable` waits. Writes after its end are ignored."""

    call: RespondingCall | None
    """The call that writes it."""

    @property
    def is_slow(self) -> bool:
        """True while the reader has not read all that was written."""

    def answer(
        self,
        status: int,
        parts: tuple[bytes, ...],
        headers: Headers = JSON_HEADERS,
        *,
        lingers: bool = False,
    ) -> None:
        """Write a whole response; the writer adds its length.

        With `lingers`, read on for a moment before closing: a client that is still sending would
        lose the response (RFC 9112, 9.6).
        """

    def begin_stream(self, headers: Headers) -> None:
        """Write the head of a response without a length."""

    def send_chunk(self, chunk: bytes, *, last: bool = False) -> None:
        """Write a part of the stream."""

    async def wait_writable(self) -> None:
        """Wait while the reader is slow."""

    def fail(self, error: BaseException) -> None:
        """Report an unexpected error, and end the response with it."""


class BodyReceiver(Protocol):
    """The body of a request, as its server delivers it."""

    def add(self, piece: bytes) -> None:
        """Take the next piece."""

    def end(self) -> None:
        """Serve the request: its body is complete."""


class HttpEndpoint(Protocol):
    """The application of a server."""

    def respond(self, scope: Scope, writer: ResponseWriter) -> BodyReceiver | None:
        """Respond to a request, or return what receives its body first."""
