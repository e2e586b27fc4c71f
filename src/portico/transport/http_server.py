"""Serves the app over HTTP with uvicorn, and drains it on shutdown."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable, Iterator

import uvicorn

from portico.state.report import report
from portico.transport.asgi import CLOSE
from portico.transport.http_app import HttpApp
from portico.transport.http_connection import HttpConnection
from portico.transport.starting import Running, start_unless

DRAIN_S = 30.0
NOTICE_S = 8.0
"""haproxy's defaults take up to 6 s to see that a server is not ready (3 checks, every 2 s)."""
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_BACKLOG = 2048


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
    server = _Server(_config(app), sockets, ready)

    def give_notice() -> float:
        """Begin the notice and return its length; 0 if no load balancer would see it."""
        if not drain_notice_s or not app.is_probed:
            return 0.0
        app.begin_notice()
        server.close_after_responses()
        report(
            f"stopping in {drain_notice_s:g} s: /readyz reports not ready, requests are still "
            "served; send another signal to stop now"
        )
        return drain_notice_s

    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(_stopped_by_signals(stop, give_notice))
        if running is not None and not await start_unless(stop, running, stack):
            return
        serving = asyncio.create_task(server.serve(sockets))
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not serving.done():
                app.begin_drain()
                if closing is not None:
                    closing()
                server.stop_accepting()
                await app.drain(drain_s)
        finally:
            stopping.cancel()
            server.exit()
            await serving


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
            bound.listen(_BACKLOG)
        except OSError:
            bound.close()
            if sockets:
                continue  # `localhost` on a machine without IPv6, say
            raise
        bound.setblocking(False)
        sockets.append(bound)
    return sockets


class _Server(uvicorn.Server):
    """uvicorn with our own signal handling and `ready` callback, and without polling."""

    def __init__(
        self,
        config: uvicorn.Config,
        sockets: list[socket.socket],
        ready: Callable[[int], None] | None,
    ) -> None:
        super().__init__(config)
        self._ready = ready
        self._exit = asyncio.Event()
        self._port = sockets[0].getsockname()[1]

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and self._ready is not None:
            self._ready(self._port)

    async def main_loop(self) -> None:
        # uvicorn polls ten times a second for an exit; the date header needs once a second.
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._exit.wait(), 1)

    def exit(self) -> None:
        """Close all connections and return."""
        self.should_exit = True
        self._exit.set()

    def close_after_responses(self) -> None:
        """Close each connection with its next response: a load balancer that keeps idle
        connections must not lose a request on one."""
        self.config.encoded_headers.append(CLOSE)
        self.server_state.default_headers = [*self.server_state.default_headers, CLOSE]

    def stop_accepting(self) -> None:
        """Accept no new connections; keep the open ones."""
        for server in self.servers:
            server.close()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # uvicorn would raise the signal again after a clean stop, and we could not exit with 0.
        yield


def _config(app: HttpApp) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        interface="asgi3",
        http=HttpConnection,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=max(1, round(app.limits.keep_alive_s)),
        timeout_graceful_shutdown=1,
    )


@contextlib.contextmanager
def _stopped_by_signals(stop: asyncio.Event, give_notice: Callable[[], float]) -> Iterator[None]:
    """Set `stop` on SIGINT, or on SIGTERM after the notice; a later signal ends the process, as
    by default."""
    loop = asyncio.get_running_loop()
    notice: asyncio.TimerHandle | None = None

    def received(number: signal.Signals) -> None:
        nonlocal notice
        if number == signal.SIGTERM and notice is None and (wait_s := give_notice()):
            notice = loop.call_later(wait_s, exit)
        else:
            exit()

    def exit() -> None:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
        stop.set()

    # Not available in other threads or on Windows: use `stop` there.
    with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
        for number in _SIGNALS:
            loop.add_signal_handler(number, received, number)
    try:
        yield
    finally:
        if notice is not None:
            notice.cancel()
        with contextlib.suppress(NotImplementedError):
            for number in _SIGNALS:
                loop.remove_signal_handler(number)
