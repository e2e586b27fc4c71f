"""Serves the app over HTTP, and drains it on shutdown."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable

from portico.core.http1.server import BACKLOG, Http1Server
from portico.core.model.defaults import DRAIN_S, NOTICE_S
from portico.core.state.report import report
from portico.edge.transport.http_app import HttpApp
from portico.edge.transport.starting import Running, start_unless
from portico.edge.transport.stop_signals import stop_on_signals

_CLOSE_S = 1.0
"""How long the last responses may take to be written."""


async def serve_http(
    app: HttpApp,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    drain_s: float = DRAIN_S,
    drain_notice_s: float = NOTICE_S,
    ready: Callable[[int], None] | None = None,
    stop: asyncio.Event | None = None,
    sockets: list[socket.socket] | None = None,
    running: Running | None = None,
    closing: Callable[[], None] | None = None,
) -> None:
    """Serve until SIGTERM, SIGINT or `stop`, then let running calls finish.

    If a load balancer probes `/readyz`, SIGTERM first begins a notice of `drain_notice_s`: not
    ready, but still serving. SIGINT, a second signal and `stop` begin the drain at once, and a
    signal during the drain ends the process. `ready` gets the port once clients can connect. An
    address that is not available raises OSError before anything is served. `sockets` come from
    `bind`, if it was already called. `running` is entered before the first connection is accepted,
    and exited after the last request. `closing` is called before the sockets are closed.
    """
    sockets = sockets or bind(host, port)
    stop = stop or asyncio.Event()
    server = Http1Server(app, app.limits, app.cap, app.unread)

    def give_notice() -> float:
        """Begin the notice and return its length; 0 if no load balancer would see it."""
        if not drain_notice_s or not app.is_probed:
            return 0.0
        app.begin_notice()
        server.keeps_alive = False  # a load balancer must not lose a request on an idle one
        report(
            f"stopping in {drain_notice_s:g} s: /readyz reports not ready, requests are still "
            "served; send another signal to stop now"
        )
        return drain_notice_s

    async with contextlib.AsyncExitStack() as stack:

        def interrupted() -> None:
            restore_signals()  # a further signal ends the process

        restore_signals = stop_on_signals(stop, interrupted, give_notice)
        stack.callback(restore_signals)
        if running is not None and not await start_unless(stop, running, stack):
            return
        try:
            await server.start(sockets)
            if ready is not None:
                ready(sockets[0].getsockname()[1])
            await stop.wait()
            app.begin_drain()
            if closing is not None:
                closing()
            server.stop_accepting()
            await app.drain(drain_s)
        finally:
            await server.close(_CLOSE_S)
            await app.close()


def bind(host: str, port: int) -> list[socket.socket]:
    """Return listening sockets for all addresses of a host, on one port; 0 picks a free one."""
    sockets: list[socket.socket] = []
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    for family, type, _, _, (name, _, *more) in dict.fromkeys(found):
        chosen = sockets[0].getsockname()[1] if sockets else port
        bound = socket.socket(family, type)
        try:
            if os.name == "posix":
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            bound.bind((name, chosen, *more))
            bound.listen(BACKLOG)
        except OSError:
            bound.close()
            if sockets:
                continue  # `localhost` on a machine without IPv6, say
            raise
        bound.setblocking(False)
        sockets.append(bound)
    return sockets
