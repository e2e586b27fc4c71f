"""Why an HTTP request came to nothing, in words that follow the name of its server.

Trouble
├── Unfit         it could not even be asked: its URL, a header, or the way to it
├── Unreachable   nobody was there, or not who was meant
└── Snapped       the connection broke before the answer was whole, or what came was no answer
"""

import os


class Http1Error(Exception):
    """What ended a request."""


class InvalidRequest(Http1Error):
    """Nothing was sent, and nothing could be."""

    def __init__(self, why: str) -> None:
        super().__init__(f"cannot be asked: {why}")


class ConnectError(Http1Error):
    """No connection came about."""

    @classmethod
    def because(cls, why: str) -> "ConnectError":
        """A connection was refused, or nobody knows the way."""
        return cls(f"cannot be reached: {why}")

    @classmethod
    def in_time(cls, seconds: float) -> "ConnectError":
        """Nobody said yes or no."""
        return cls(f"does not accept the connection within {seconds:g} s")


class ConnectionLost(Http1Error):
    """What was sent may have arrived, and may have been done."""

    def __init__(self, why: str) -> None:
        super().__init__(f"broke the connection: {why}")


def words(error: Exception) -> str:
    """What the system says of an error, without its number."""
    said = None
    if isinstance(error, OSError):
        said = error.strerror
        if said and said.startswith("Connect call failed"):  # asyncio's words, not the system's
            said = os.strerror(error.errno or 0)
    return said or str(error) or type(error).__name__
