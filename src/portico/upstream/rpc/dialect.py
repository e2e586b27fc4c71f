"""The differences between protocols on top of JSON-RPC: cancellation, progress, tolerance."""

from msgspec import Struct


class Dialect(Struct, frozen=True, kw_only=True):
    """The conventions of one protocol; the defaults are those of MCP."""

    cancel_method: str = "notifications/cancelled"
    """The notification that cancels a request, in both directions."""
    has_cancel_reason: bool = True
    """True if that notification carries a reason."""
    cancelled_code: int | None = None
    """The code of the error that answers a cancelled request; None if it gets no answer."""
    progress_method: str = "notifications/progress"
    """The notification that extends the timeout of a request; empty if there is none."""
    max_garbage_lines: int = 1000
    """The consecutive lines that are not messages that the other side may send."""
    max_incoming: int = 1000
    """The number of its own requests that the other side may have open."""


MCP = Dialect()
