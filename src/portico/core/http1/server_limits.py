"""The limits of an HTTP server that concern connections, whatever is served."""

from msgspec import Struct


class ServerLimits(Struct, frozen=True, kw_only=True):
    """Limits with sensible defaults; each can be set."""

    unread_bytes: int = 256 * 1024 * 1024
    """Responses buffered for slow readers, all together."""
    connections: int = 10_000
    half_open: int = 500
    """Connections that have not sent all of their first headers."""
    header_bytes: int = 32 * 1024
    header_s: float = 10.0
    """The timeout of a request's headers, from its first byte or from connecting."""
    body_s: float = 30.0
    """The timeout of a request's body, from the end of its headers."""
    keep_alive_s: float = 75.0
    """The timeout of an idle connection."""
    stall_s: float = 60.0
    """The timeout of a reader that reads nothing while data waits for it."""
