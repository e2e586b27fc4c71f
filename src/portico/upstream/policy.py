"""How an upstream is dealt with: every limit, and what becomes of who fails."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from portico.upstream.backoff import BackoffLimits
from portico.upstream.handshake import HandshakeLimits


class UpstreamPolicy(Struct, frozen=True):
    """How an upstream is dealt with; every limit can be set."""

    limits: HandshakeLimits = HandshakeLimits()
    idle_s: float | None = 300.0
    """Nothing to do for so long ends a connection; None never does."""
    max_in_flight: int = 256
    max_queue: int = 1024
    instances: int = 1
    sharing: str = "auto"
    era: str = "auto"
    is_process: bool = False
    """The upstream is a process that we run: clients of both eras share it where they can."""
    may_ask: bool = True
    """False refuses the upstream's questions, and shows it clients that cannot be asked."""
    prefers_modern: bool = False
    """Such a process is spoken to in the modern era if it has that, whatever its first client."""
    backoff: BackoffLimits = BackoffLimits()
    suspended_s: float = 600.0
    """How long a call waits for a modern client to come back with its answers."""
    max_suspended: int = 100
    max_children: int = 64
    """So many connections of single clients' own at a time."""
    info: Mapping[str, Any] = field(default_factory=lambda: {"name": "portico", "version": "0"})
    max_items: int | None = None
    """Of each list; the rest is reported and left out."""
    reveals: bool = False
    """Whether hidden characters are written out in what it offers."""
