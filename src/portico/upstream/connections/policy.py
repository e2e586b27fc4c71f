"""The policy for an upstream: its limits, sharing and backoff."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from portico.core.model.defaults import IDLE_S, MAX_IN_FLIGHT
from portico.upstream.connections.backoff import BackoffLimits
from portico.upstream.connections.handshake import HandshakeLimits
from portico.upstream.connections.installs import Installs


class UpstreamPolicy(Struct, frozen=True):
    """The limits and options of one upstream."""

    limits: HandshakeLimits = HandshakeLimits()
    idle_s: float | None = IDLE_S
    """The idle time after which a connection closes; None for never."""
    max_in_flight: int = MAX_IN_FLIGHT
    max_queue: int = 1024
    instances: int = 1
    sharing: str = "auto"
    era: str = "auto"
    is_process: bool = False
    """True for a process that Portico runs: clients of both eras share it where they can."""
    may_ask: bool = True
    """False refuses the upstream's questions, and hides the clients' capabilities for them."""
    hides_tasks: bool = False
    """True if clients never see the upstream's own ids of tasks."""
    is_gateway: bool = False
    """True chooses the era and the process in which questions work; False keeps a client's own."""
    backoff: BackoffLimits = BackoffLimits()
    installs: Installs = field(default_factory=Installs)
    """The turns of installers, which all upstreams of a gateway share."""
    suspended_s: float = 600.0
    """How long a suspended call waits for a modern client's answers."""
    max_suspended: int = 100
    max_children: int = 64
    """The number of connections that are owned by single clients."""
    info: Mapping[str, Any] = field(default_factory=lambda: {"name": "portico", "version": "0"})
    max_items: int | None = None
    """The limit of each list; the number of further items is reported."""
    reveals: bool = False
    """True writes out hidden characters in the catalog."""
