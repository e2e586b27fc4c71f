"""The failures of an HTTP request. Their texts follow the name of the server.

Http1Error
├── InvalidRequest   the request was not sent: its URL, a header or the proxy is not valid
├── ConnectError     the server refused the connection, timed out or failed the TLS handshake
│   └── ForbiddenAddress   its address may not be contacted
├── ConnectionLost   the connection ended before the response did, or the response is not valid
└── InvalidBody      the response is valid, but its body has another size than it may have
"""

import os


class Http1Error(Exception):
    """A request failed."""


class InvalidRequest(Http1Error):
    """The request cannot be sent as it is."""

    def __init__(self, why: str) -> None:
        super().__init__(f"cannot be contacted: {why}")


class ConnectError(Http1Error):
    """The connection could not be opened."""

    @classmethod
    def because(cls, why: str) -> "ConnectError":
        """The connection failed for this reason."""
        return cls(f"cannot be reached: {why}")

    @classmethod
    def in_time(cls, seconds: float) -> "ConnectError":
        """The connection timed out."""
        return cls(
            f"did not accept the connection within {seconds:g} s; check its URL and your network"
        )


class ForbiddenAddress(ConnectError):
    """The address may not be contacted; it was not."""


class ConnectionLost(Http1Error):
    """The request was sent; the server may have processed it."""


class InvalidBody(Http1Error):
    """The body is larger, smaller or another part than it may be."""


def error_text(error: Exception) -> str:
    """Return the system's text of an error, without its number."""
    text = None
    if isinstance(error, OSError):
        text = error.strerror
        if text and text.startswith("Connect call failed"):  # from asyncio, not from the system
            text = os.strerror(error.errno or 0)
    return text or str(error) or type(error).__name__
