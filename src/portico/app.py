"""The composition root: it alone knows every room."""

import asyncio
from collections.abc import Sequence

from portico.model.errors import PorticoError
from portico.model.types import Link
from portico.server import Server

DRAIN_S = 30.0
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class UsageError(PorticoError):
    """What was asked for cannot be; the message says what can."""


def serve_stdio(
    server: Server,
    *,
    links: Sequence[Link] = (),
    out: int | None = None,
    drain_s: float = DRAIN_S,
) -> None:
    """Serve one client over stdin and stdout until it leaves or SIGTERM comes."""
    from portico.transport.pipes import serve_stdio as over_pipes

    asyncio.run(over_pipes(server.endpoint(links), out=out, drain_s=drain_s))


def parse_address(text: str) -> tuple[str, int]:
    """`PORT`, `HOST:PORT` or `[IPV6]:PORT`; the host is loopback unless it is named."""
    host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise UsageError(f"{text!r} is no address: give PORT, HOST:PORT or [IPV6]:PORT")
    return host.strip("[]") or _LOOPBACK[0], int(port)
