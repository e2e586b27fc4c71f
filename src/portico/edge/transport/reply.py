"""Whole HTTP responses: refusals and other fixed answers."""

from msgspec import Struct

from portico.core.http1.port import CLOSE, JSON_TYPE, Headers, ResponseWriter
from portico.core.model.errors import INTERNAL_ERROR, INVALID_REQUEST
from portico.core.model.message import Response
from portico.core.protocol.codec import error_response
from portico.edge.transport.calls_in_flight import shutdown_error
from portico.edge.transport.http_limits import HttpLimits

RETRY_AFTER = (b"retry-after", b"1")
_DIGITS = 20


class Reply(Struct, frozen=True):
    """A whole HTTP response."""

    status: int
    body: bytes = b""
    headers: Headers = ()
    lingers: bool = False
    """True to read on for a moment, so that a client still sending does not lose this reply."""

    def send(self, writer: ResponseWriter) -> None:
        """Send it."""
        writer.answer(self.status, (self.body,), self.headers, lingers=self.lingers)


def send_response(
    writer: ResponseWriter, response: Response, status: int, headers: Headers = ()
) -> None:
    """Send a response as JSON; 202 if it is empty."""
    if response.is_nothing:
        Reply(202, headers=headers).send(writer)
    else:
        writer.answer(status, response.parts, (JSON_TYPE, *headers))


def refusal(status: int, why: str, *headers: tuple[bytes, bytes], lingers: bool = False) -> Reply:
    """Return a refusal whose body is a JSON-RPC error without an id, as the spec allows."""
    code = INVALID_REQUEST if status < 500 else INTERNAL_ERROR
    body = error_response(b"", code, why).encode()
    return Reply(status, body, (JSON_TYPE, *headers), lingers)


def overloaded(why: str, id: bytes = b"") -> Reply:
    """Return 503 for a request that may be retried in a moment."""
    return Reply(503, busy(id, why).encode(), (JSON_TYPE, RETRY_AFTER))


def busy(id: bytes, why: str = "too many calls are running") -> Response:
    """Return the error for a call over the limit."""
    return error_response(id, INTERNAL_ERROR, f"{why}: try again in a moment")


def shutting_down(id: bytes = b"") -> Reply:
    """Return 503 for new work during a drain, and close the connection."""
    return Reply(503, shutdown_error(id).encode(), (JSON_TYPE, RETRY_AFTER, CLOSE))


def declared_too_large(length: bytes, limits: HttpLimits) -> Reply | None:
    """Return a refusal if Content-Length is invalid or over the limit."""
    if not length.isdigit() or len(length) > _DIGITS:
        return refusal(400, f"Content-Length must be a number of up to {_DIGITS} digits", CLOSE)
    return too_large(limits) if int(length) > limits.body_bytes else None


def too_large(limits: HttpLimits) -> Reply:
    """Return 413 for a body over the limit."""
    return refusal(413, f"the body is larger than {limits.body_bytes} bytes", CLOSE, lingers=True)
