"""The composition root: it alone knows every room."""

import asyncio
import errno
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

from portico.model.errors import PorticoError
from portico.model.types import Link
from portico.state.report import report
from portico.state.stderr import STDERR

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from socket import socket

    from portico.gateway.gateway_app import GatewayApp
    from portico.gateway.serve_options import ServeOptions
    from portico.server import Server
    from portico.transport.client_connection import Endpoint
    from portico.transport.http_app import Page
    from portico.windows.window import SharedGateway
    from portico.wrap_app import WrapOptions

T = TypeVar("T")

DRAIN_S = 30.0
NOTICE_S = 8.0
"""How long load balancers have to see that we leave, before the drain."""
_LEAVE_S = 1.0
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Addresses that mean all of this machine's, and the one by which it reaches itself."""


class UsageError(PorticoError):
    """What was asked for cannot be; the message says what can."""

    exit_code = 2


class At(TypedDict, total=False):
    """How to serve over HTTP: who may come in, and how it ends."""

    auth: str
    hosts: Sequence[str]
    token_file: str | None
    drain_s: float
    drain_notice_s: float


def serve_stdio(
    server: "Server",
    *,
    links: Sequence[Link] = (),
    out: int | None = None,
    drain_s: float = DRAIN_S,
) -> int:
    """Serve one client over stdin and stdout until it leaves or SIGTERM comes; the exit code."""
    from portico.transport.pipes import serve_stdio as over_pipes

    served = over_pipes(server.endpoint(links), out=out, drain_s=drain_s)
    return 0 if _run_pipes(served) else 1


def serve_http(
    server: "Server", address: str, *, links: Sequence[Link] = (), **at: Unpack[At]
) -> None:
    """Serve over HTTP at `[HOST:]PORT` until SIGTERM comes."""
    _run(_Door(address, **at).serve(server.endpoint(links)))


def wrap_stdio(wrapping: "WrapOptions", *, out: int | None = None, drain_s: float = DRAIN_S) -> int:
    """Put a doorway over stdin and stdout in front of one upstream; the exit code."""
    from portico.transport.pipes import serve_stdio as over_pipes
    from portico.wrap_app import WrapApp

    async def serve() -> int:
        wrapped = WrapApp(wrapping, alone=True)
        async with wrapped.running():
            whole = await over_pipes(wrapped.endpoint, out=out, drain_s=drain_s, stop=wrapped.stop)
        if whole and wrapped.failure is not None:
            report(wrapped.failure.message)
        return 0 if whole and wrapped.failure is None else 1

    return _run_pipes(serve())


def wrap_http(wrapping: "WrapOptions", address: str, **at: Unpack[At]) -> int:
    """Put a doorway over HTTP at `[HOST:]PORT` in front of one upstream; the exit code."""
    from portico.wrap_app import WrapApp

    door = _Door(address, **at)

    async def serve() -> int:
        door.bind()
        wrapped = WrapApp(wrapping, alone=False, url=door.url)
        async with wrapped.running():
            await door.serve(wrapped.endpoint)
        return 0

    return _run(serve())


def gateway_stdio(
    serving: "ServeOptions",
    *,
    out: int | None = None,
    drain_s: float = DRAIN_S,
    alone: bool = False,
) -> int:
    """Put a doorway over stdin and stdout in front of all configured servers; the exit code."""
    from portico.windows.window import serve_shared

    return 0 if _run_pipes(serve_shared(_shared(serving, drain_s, alone), out=out)) else 1


def gateway_http(
    serving: "ServeOptions", address: str, *, alone: bool = False, **at: Unpack[At]
) -> int:
    """Put a doorway over HTTP at `[HOST:]PORT` in front of all configured servers."""
    from portico.windows.window import host_gateway

    door = _Door(address, **at)
    shared = _shared(serving, door.drain_s, alone)

    async def serve() -> int:
        door.bind()  # before any server is started
        stop = asyncio.Event()
        async with host_gateway(shared, stop) as served:
            served.url = door.url
            await door.serve(
                served.endpoint,
                served.endpoint_at,
                watch=served.on_routes_changed,
                pages={"/metrics": served.metrics_page},
                limits=serving.config.gateway.limits,
                stop=stop,
            )
        return 0

    return _run(serve())


def _shared(serving: "ServeOptions", drain_s: float, alone: bool) -> "SharedGateway[GatewayApp]":
    from portico.config.paths import control_folder
    from portico.windows.window import SharedGateway

    latest = serving

    def now() -> "ServeOptions":
        nonlocal latest
        latest = latest.reloaded()
        return latest

    def own() -> "AbstractAsyncContextManager[GatewayApp]":
        from portico.gateway.gateway_app import GatewayApp

        return GatewayApp(now()).running()

    return SharedGateway(
        folder=control_folder(),
        # Not with the others: a name of its own is nobody else's.
        key=f"alone-{os.getpid()}" if alone else serving.key(),
        detaches=not alone,
        log=_owners_log,
        own=own,
        version=serving.version,
        account=lambda: now().account(),
        preferences={"expose": serving.expose},
        drain_s=drain_s,
    )


def _owners_log() -> str:
    """The file for what an owner writes to stderr."""
    from portico.config.paths import log_file
    from portico.state.files import make_private

    folder = os.path.dirname(log_file())
    make_private(folder)
    return os.path.join(folder, "owner.log")


class _Door:
    """An address to serve at, and who may come in."""

    def __init__(
        self,
        address: str,
        *,
        auth: str = "token",
        hosts: Sequence[str] = (),
        token_file: str | None = None,
        drain_s: float = DRAIN_S,
        drain_notice_s: float = NOTICE_S,
    ) -> None:
        self._address = address
        self.drain_s, self._drain_notice_s = drain_s, drain_notice_s
        self._host, self._port = host, _ = parse_address(address)
        if auth == "none" and host not in _LOOPBACK:
            raise UsageError(
                f"--auth none is for loopback only, and {host} is not: leave the token on"
            )
        if auth == "none" and token_file is not None:
            raise UsageError("--token-file and --auth none exclude each other: choose one")
        self._token = None
        self._token_place = ""
        if auth != "none":
            from portico.auth.token import token_of_door
            from portico.config.paths import state_dir

            given = token_of_door(state_dir(), token_file)
            self._token, self._token_place = given.token, given.place
        # Whoever binds to an address means to be reached by it.
        named = [host] if host not in (*_LOOPBACK, *_ANYWHERE) else []
        self._hosts = [*named, *hosts]
        self._sockets: list[socket] = []
        self.url = ""
        """Where clients find it, once it is bound."""

    def bind(self) -> None:
        """Have the address; PorticoError if it cannot be had."""
        from portico.transport.http_server import bind

        try:
            self._sockets = bind(self._host, self._port)
        except OSError as error:
            why = f"{error.strerror or error}"
            if error.errno == errno.EADDRINUSE:
                why += "; choose another port, or 0 for any that is free"
            raise PorticoError(f"cannot serve at {self._address}: {why}") from None
        host = _ANYWHERE.get(self._host, self._host)
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._sockets[0].getsockname()[1]}/mcp"

    async def serve(
        self,
        endpoint: "Endpoint",
        find: "Callable[[str], Endpoint | None] | None" = None,
        *,
        watch: Callable[[Callable[[], None]], None] | None = None,
        pages: "Mapping[str, Page] | None" = None,
        limits: Mapping[str, Any] | None = None,
        stop: asyncio.Event | None = None,
    ) -> None:
        """Serve until SIGTERM comes; `find` gives the endpoints at further paths, and `watch` is
        given what to call when they may be others."""
        from portico.transport.http_limits import HttpLimits
        from portico.transport.http_server import serve_http as over_http
        from portico.transport.routes import Routes

        def announce(_: int) -> None:
            wanted = f" (wants the bearer token {self._token_place})" if self._token else ""
            report(f"serving {self.url}{wanted}")
            if self._host in _ANYWHERE and not self._hosts:
                report("others get in by a name that --allow-host gives; there is none")

        if not self._sockets:
            self.bind()
        app = Routes(
            endpoint,
            find or (lambda _: None),
            token=self._token,
            token_place=self._token_place,
            hosts=self._hosts,
            pages=pages,
            limits=HttpLimits(**(limits or {})),
        )
        if watch is not None:
            watch(app.retire_stale)
        await over_http(
            app,
            sockets=self._sockets,
            drain_s=self.drain_s,
            drain_notice_s=self._drain_notice_s,
            ready=announce,
            stop=stop,
        )


def parse_address(text: str) -> tuple[str, int]:
    """`PORT`, `HOST:PORT` or `[IPV6]:PORT`; the host is loopback unless it is named."""
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise UsageError(f"{text!r} is not an address: give PORT, HOST:PORT or [IPV6]:PORT")
    return host.strip("[]") or _LOOPBACK[0], int(port)


def _run(serving: Coroutine[Any, Any, T]) -> T:
    try:
        import uvloop
    except ImportError:
        return asyncio.run(_to_the_end(serving))
    else:
        return uvloop.run(_to_the_end(serving))


def _run_pipes(serving: Coroutine[Any, Any, T]) -> T:
    from portico.transport.pipe_loop import PipeLoop

    with asyncio.Runner(loop_factory=PipeLoop) as runner:
        return runner.run(_to_the_end(serving))


async def _to_the_end(serving: Coroutine[Any, Any, T]) -> T:
    """Serve, then leave: a handler that takes no notice of being cancelled cannot keep us."""
    outcome = await serving
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left and (await asyncio.wait(left, timeout=_LEAVE_S))[1]:
        report("a handler does not stop; leaving without it")
        STDERR.flush()
        os._exit(0)
    return outcome
