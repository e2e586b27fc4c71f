"""An upstream's own errors, read as far as they can be, and kept byte for byte."""

from msgspec import Raw

from portico.model.errors import McpError
from portico.model.wording import printable
from portico.protocol.codec import Envelope, encode, read_error
from portico.protocol.inbound import Malformed, read_message
from portico.wires.wire import Failure

_AUTH_STATUSES = (401, 403)
"""Statuses that speak for themselves, whatever the body adds."""

_MAX_MESSAGE_CHARS = 500


class ServerError(McpError):
    """The upstream's own error, and its very bytes."""

    raw: bytes = b""


class HttpError(ServerError):
    """The upstream's own error, which came with an HTTP status."""

    def __init__(self, error: ServerError, status: int) -> None:
        super().__init__(error.message, error.code, error.data)
        self.raw = error.raw
        self.status = status


def error_of(raw: bytes) -> ServerError:
    """What an answer says went wrong."""
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
    """What an error says, as a part of a line of ours."""
    words = " ".join(error.message.split())
    return printable(
        words if len(words) <= _MAX_MESSAGE_CHARS else f"{words[:_MAX_MESSAGE_CHARS]}..."
    )


def error_in(failure: Failure) -> HttpError | None:
    """The JSON-RPC error in an HTTP body, whether or not it names the request."""
    if failure.status is None or failure.status in _AUTH_STATUSES or not failure.body:
        return None
    try:
        envelope = read_message(failure.body)
    except Malformed:
        return None
    if not isinstance(envelope, Envelope) or envelope.jsonrpc != "2.0" or not envelope.error:
        return None
    return HttpError(error_of(bytes(envelope.error)), failure.status)
