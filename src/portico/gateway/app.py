"""The composition root: the only module that knows every package."""

import asyncio
import errno
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, TypeVar, Unpack

from portico.core.config.paths import state_folder, working_folder
from portico.core.model.defaults import DRAIN_S, NOTICE_S
from portico.core.model.errors import McpError, PorticoError
from portico.core.model.types import Link
from portico.core.state.client_sessions import SESSIONS
from portico.core.state.report import report
from portico.core.state.stderr import STDERR

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from socket import socket

    from portico.core.model.types import Endpoint
    from portico.edge.transport.custom_transport import Transport
    from portico.edge.transport.http_app import Page
    from portico.edge.transport.routes import FindAccess
    from portico.edge.windows.owner_start import StartedOwner
    from portico.edge.windows.window import SharedGateway
    from portico.gateway.composition_app import CompositionOptions
    from portico.gateway.serve.gateway_app import GatewayApp
    from portico.gateway.serve.serve_options import ServeOptions
    from portico.gateway.wrap_app import WrapOptions
    from portico.library.server import Server
    from portico.upstream.auth.own_listeners import ListenerRecord

T = TypeVar("T")

_EXIT_S = 1.0
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Wildcard addresses, and the loopback address for each."""


class UsageError(PorticoError):
    """Options that exclude each other, or an invalid value; the message names valid ones."""

    exit_code = 2


class HttpOptions(TypedDict, total=False):
    """The options of an HTTP endpoint: authentication, hosts and drain."""

    auth: str
    hosts: Sequence[str]
    token_file: str | None
    drain_s: float
    drain_notice_s: float


class TransportOptions(TypedDict, total=False):
    """The options of a transport of the user's own: where it listens, and how long it drains."""

    address: str | None
    drain_s: float


class EndpointApp(Protocol):
    """An endpoint and the servers behind it, from start to end."""

    stop: asyncio.Event
    """Set when it cannot serve its only client."""
    failure: McpError | None

    @property
    def endpoint(self) -> "Endpoint":
        """The endpoint to serve."""
        ...

    def running(self) -> "AbstractAsyncContextManager[object] | None":
        """Return the context to serve in, which starts and closes the servers; None if nothing has
        to be started."""
        ...


AppFactory = Callable[[str | None], EndpointApp]
"""Makes an app inside a running event loop. Its argument is the URL of the HTTP endpoint, empty for
another transport, and None for the only client of stdio."""


class _ServerApp:
    """A `Server` behind links."""

    failure: McpError | None = None

    def __init__(self, server: "Server", links: Sequence[Link]) -> None:
        self.stop = asyncio.Event()
        self.endpoint = server.endpoint(links)
        self._server = server

    def running(self) -> "AbstractAsyncContextManager[object] | None":
        return self._server.running() if self._server.must_run else None


def server_app(server: "Server", links: Sequence[Link] = ()) -> AppFactory:
    """Return the factory that serves a server."""
    return lambda _: _ServerApp(server, links)


def wrap_app(options: "WrapOptions") -> AppFactory:
    """Return the factory that serves one upstream."""
    from portico.gateway.wrap_app import WrapApp

    return lambda url: WrapApp(options, alone=url is None, url=url or "")


def composition_app(options: "CompositionOptions") -> AppFactory:
    """Return the factory that serves several components as one server."""
    from portico.gateway.composition_app import CompositionApp

    return lambda _: CompositionApp(options)


def app_stdio(make: AppFactory, *, out: int | None = None, drain_s: float = DRAIN_S) -> int:
    """Serve one client over stdin and stdout until it disconnects; return the exit code."""
    from portico.edge.transport.stdio import serve_stdio as over_pipes

    async def serve() -> int:
        app = make(None)
        is_complete = await over_pipes(
            app.endpoint,
            out=out,
            drain_s=drain_s,
            stop=app.stop,
            running=app.running(),
            folder=working_folder(),
        )
        if is_complete and app.failure is not None:
            report(app.failure.message)
        return 0 if is_complete and app.failure is None else 1

    return _run_pipes(serve())


def app_http(make: AppFactory, address: str, **options: Unpack[HttpOptions]) -> int:
    """Serve over HTTP at `[HOST:]PORT` until SIGTERM arrives; return the exit code."""
    listener = _HttpListener(address, **options)

    async def serve() -> int:
        listener.bind()  # before any server is started
        app = make(listener.url)
        await listener.serve(app.endpoint, running=app.running())
        return 0

    return _run(serve())


def app_transport(
    make: AppFactory, transport: "Transport", **options: Unpack[TransportOptions]
) -> int:
    """Serve over a transport of the user's own until it returns; return the exit code."""
    from portico.edge.transport.custom_transport import serve_over

    async def serve() -> int:
        app = make("")
        running = app.running()
        await serve_over(transport, app.endpoint, stop=app.stop, running=running, **options)
        return 0

    return _run(serve())


def serve_stdio(
    server: "Server",
    *,
    links: Sequence[Link] = (),
    out: int | None = None,
    drain_s: float = DRAIN_S,
) -> int:
    """Serve a server's only client over stdin and stdout; return the exit code."""
    return app_stdio(server_app(server, links), out=out, drain_s=drain_s)


def serve_http(
    server: "Server", address: str, *, links: Sequence[Link] = (), **options: Unpack[HttpOptions]
) -> None:
    """Serve a server over HTTP at `[HOST:]PORT` until SIGTERM arrives."""
    app_http(server_app(server, links), address, **options)


def serve_transport(
    server: "Server",
    transport: "Transport",
    *,
    links: Sequence[Link] = (),
    **options: Unpack[TransportOptions],
) -> int:
    """Serve a server over a transport of the user's own; return the exit code."""
    return app_transport(server_app(server, links), transport, **options)


def gateway_stdio(
    serve_options: "ServeOptions",
    *,
    out: int | None = None,
    drain_s: float = DRAIN_S,
    alone: bool = False,
    owner: tuple[str, ...] = (),
    started: "StartedOwner | None" = None,
) -> int:
    """Serve all configured servers over stdin and stdout; return the exit code.

    `owner` is how an owner makes the same gateway; `started` is one that was started already.
    """
    from portico.edge.windows.window import serve_shared

    try:
        folder = working_folder()
        # Servers that need a folder that has no name can run beside this window only.
        is_alone = alone or not folder
        shared = shared_gateway(serve_options, drain_s, is_alone, folder=folder, owner=owner)
        served = _run_pipes(serve_shared(shared, out=out, started=started))
    except PorticoError as error:
        from portico.edge.transport.refusal import refuse_client

        if out is not None:
            refuse_client(str(error), out)
        raise
    return 0 if served else 1


def gateway_http(
    serve_options: "ServeOptions",
    address: str,
    *,
    alone: bool = False,
    **options: Unpack[HttpOptions],
) -> int:
    """Serve all configured servers over HTTP at `[HOST:]PORT`; return the exit code."""
    from portico.edge.windows.window import host_gateway

    listener = _HttpListener(address, **options)
    shared = shared_gateway(serve_options, listener.drain_s, alone)

    async def serve() -> int:
        listener.bind()  # before any server is started
        stop = asyncio.Event()
        async with host_gateway(shared, stop) as served:
            served.url = listener.url
            await listener.serve(
                served.endpoint,
                served.endpoint_at,
                watch=served.on_routes_changed,
                pages={"/metrics": served.metrics_page},
                limits=serve_options.config.gateway.limits,
                stop=stop,
                find_access=served.find_access,
            )
        return 0

    return _run(serve())


def shared_gateway(
    serve_options: "ServeOptions",
    drain_s: float,
    alone: bool = False,
    *,
    folder: str = "",
    owner: tuple[str, ...] = (),
) -> "SharedGateway[GatewayApp]":
    """Return the gateway of these options, as windows share it."""
    from portico.core.config.client_exposure import client_of_environment
    from portico.core.config.paths import control_folder, owner_log
    from portico.edge.windows.owner_start import can_start_owners
    from portico.edge.windows.window import SharedGateway
    from portico.gateway.serve.serve_options import key_of

    latest = serve_options

    def current_options() -> "ServeOptions":
        nonlocal latest
        latest = latest.reloaded()
        return latest

    def own() -> "AbstractAsyncContextManager[GatewayApp]":
        from portico.gateway.serve.gateway_app import running_gateway

        return running_gateway(current_options())

    return SharedGateway(
        folder=control_folder(),
        # A key with our pid is unique, so that no other window joins.
        key=f"alone-{os.getpid()}" if alone else serve_options.key(),
        config=key_of(serve_options.config.path),
        detaches=not alone and can_start_owners(),
        owner=owner,
        log=owner_log,
        own=own,
        version=serve_options.version,
        account=lambda: current_options().account(),
        preferences={
            "expose": serve_options.expose,
            "folder": folder,
            "client": serve_options.client,
            "environment": client_of_environment(os.environ),
            "server": serve_options.server,
        },
        drain_s=drain_s,
    )


class _HttpListener:
    """An HTTP listener: its address, token and allowed hosts."""

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
        if auth not in ("token", "none"):
            raise UsageError(f"auth must be token or none, not {auth!r}")
        if auth == "none" and host not in _LOOPBACK:
            raise UsageError(
                f"--auth none is for loopback only, and {host} is not: remove --auth none"
            )
        if auth == "none" and token_file is not None:
            raise UsageError("--token-file and --auth none exclude each other: remove one")
        self._token = None
        self._token_place = ""
        if auth != "none":
            from portico.core.config.paths import state_dir
            from portico.upstream.auth.token import required_token

            given = required_token(state_dir(), token_file)
            self._token, self._token_place = given.token, given.place
        # An explicit address to bind to is also an allowed host.
        named = [host] if host not in (*_LOOPBACK, *_WILDCARDS) else []
        self._hosts = [*named, *hosts]
        self._sockets: list[socket] = []
        self._record: ListenerRecord | None = None
        self.url = ""
        """The URL for clients, once it is bound."""

    def bind(self) -> None:
        """Bind to the address; raise PorticoError on failure."""
        from portico.edge.transport.http_server import bind

        try:
            self._sockets = bind(self._host, self._port)
        except OSError as error:
            why = f"{error.strerror or error}"
            if error.errno == errno.EADDRINUSE:
                why += "; choose another port, or 0 for any free port"
            raise PorticoError(f"cannot serve at {self._address}: {why}") from None
        host = _WILDCARDS.get(self._host, self._host)
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._sockets[0].getsockname()[1]}/mcp"
        if self._token is not None:
            self._write_record()

    def _write_record(self) -> None:
        """Record our addresses, so that commands of this user send us the token."""
        from portico.core.config.paths import state_dir
        from portico.upstream.auth.own_listeners import ListenerRecord

        names = [each.getsockname()[:2] for each in self._sockets]
        try:
            self._record = ListenerRecord.write(
                state_dir(), [(_WILDCARDS.get(host, host), port) for host, port in names]
            )
        except OSError as error:
            why = error.strerror or error
            report(f"`portico call` and `portico inspect` need --token for this server: {why}")

    def _remove_record(self) -> None:
        if self._record is not None:
            self._record.remove()

    async def serve(
        self,
        endpoint: "Endpoint",
        find: "Callable[[str], Endpoint | None] | None" = None,
        *,
        watch: Callable[[Callable[[], None]], None] | None = None,
        pages: "Mapping[str, Page] | None" = None,
        limits: Mapping[str, Any] | None = None,
        stop: asyncio.Event | None = None,
        running: "AbstractAsyncContextManager[object] | None" = None,
        find_access: "FindAccess | None" = None,
    ) -> None:
        """Serve until SIGTERM arrives.

        `find` returns the endpoints at further paths; `watch` registers a callback for changes;
        `running` is entered before the first request; `find_access` returns the endpoint of a
        client with the token of a task.
        """
        from portico.core.model.context import ANYONE, LOCAL
        from portico.edge.transport.http_limits import HttpLimits
        from portico.edge.transport.http_server import serve_http as over_http
        from portico.edge.transport.routes import Routes
        from portico.upstream.auth.link_reach import expect_remote_clients
        from portico.upstream.auth.token import TASK_PREFIX

        def announce(_: int) -> None:
            required = f" (requires the bearer token {self._token_place})" if self._token else ""
            report(f"serving {self.url}{required}")
            if self._host in _WILDCARDS and not self._hosts:
                report(
                    "listening on all interfaces without --allow-host: remote clients will get 403"
                )

        if not self._sockets:
            self.bind()
        if self._hosts or self._host not in _LOOPBACK:
            expect_remote_clients()
        app = Routes(
            endpoint,
            find or (lambda _: None),
            token=self._token,
            token_place=self._token_place,
            hosts=self._hosts,
            pages=pages,
            limits=HttpLimits(**(limits or {})),
            principal=LOCAL if self._token else ANYONE,
            find_access=find_access,
            other_tokens="" if find_access is None else TASK_PREFIX,
        )
        if watch is not None:
            watch(app.retire_stale)
        try:
            await over_http(
                app,
                sockets=self._sockets,
                drain_s=self.drain_s,
                drain_notice_s=self._drain_notice_s,
                ready=announce,
                stop=stop,
                running=running,
                closing=self._remove_record,
            )
        finally:
            self._remove_record()


def parse_address(text: str) -> tuple[str, int]:
    """Parse `PORT`, `HOST:PORT` or `[IPV6]:PORT`; the host defaults to loopback."""
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise UsageError(f"{text!r} is not an address: give PORT, HOST:PORT or [IPV6]:PORT")
    return host.strip("[]") or _LOOPBACK[0], int(port)


def _run(serving: Coroutine[Any, Any, T]) -> T:
    SESSIONS.keep_in(state_folder)
    try:
        import uvloop
    except ImportError:
        return asyncio.run(_run_and_exit(serving))
    else:
        return uvloop.run(_run_and_exit(serving))


def _run_pipes(serving: Coroutine[Any, Any, T]) -> T:
    from portico.edge.transport.pipe_loop import PipeLoop

    SESSIONS.keep_in(state_folder)
    with asyncio.Runner(loop_factory=PipeLoop) as runner:
        return runner.run(_run_and_exit(serving))


async def _run_and_exit(serving: Coroutine[Any, Any, T]) -> T:
    """Serve, then exit, even if a handler ignores its cancellation."""
    outcome = await serving
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left and (await asyncio.wait(left, timeout=_EXIT_S))[1]:
        report("a handler did not stop when cancelled; exiting without it")
        STDERR.flush()
        os._exit(0)
    return outcome
