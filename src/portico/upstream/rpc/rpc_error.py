"""An upstream's own errors, parsed where possible and kept byte for byte."""

from msgspec import Raw

from portico.core.model.errors import McpError
from portico.core.model.wording import printable
from portico.core.protocol.codec import Envelope, encode, read_error
from portico.core.protocol.inbound import Malformed, read_message
from portico.upstream.wires.wire import Failure

_AUTH_STATUSES = (401, 403)
"""Statuses that are reported as such, whatever the body contains."""

_MAX_MESSAGE_CHARS = 500


class ServerError(McpError):
    """The upstream's own error, with its bytes."""

    raw: bytes = b""


class HttpError(ServerError):
    """The upstream's own error in an HTTP response."""

    def __init__(self, error: ServerError, status: int) -> None:
        super().__init__(error.message, error.code, error.data)
        self.raw = error.raw
        self.status = status


def error_of(raw: bytes) -> ServerError:
    """Return the error of a response."""
    error = read_error(raw)
    if error is None:
        words = "an error that is not valid JSON-RPC"
        known = ServerError(words)
        known.raw = encode({"code": known.code, "message": words, "data": Raw(raw)})
        return known
    code, message, data = error
    known = ServerError(message or "an error without a message", code, data)
    known.raw = raw
    return known


def one_line(error: McpError) -> str:
    """Return an error's message as part of one line."""
    words = " ".join(error.message.split())
    return printable(
        words if len(words) <= _MAX_MESSAGE_CHARS else f"{words[:_MAX_MESSAGE_CHARS]}..."
    )


def error_in(failure: Failure) -> HttpError | None:
    """Return the JSON-RPC error in an HTTP body, with or without the id of the request."""
    if failure.status is None or failure.status in _AUTH_STATUSES or not failure.body:
        return None
    try:
        envelope = read_message(failure.body)
    except Malformed:
        return None
    if not isinstance(envelope, Envelope) or envelope.jsonrpc != "2.0" or not envelope.error:
        return None
    return HttpError(error_of(bytes(envelope.error)), failure.status)
