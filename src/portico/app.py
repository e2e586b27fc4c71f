"""The composition root: it alone knows every room."""

import asyncio
import errno
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from portico.model.errors import PorticoError
from portico.model.types import Link
from portico.state.report import report
from portico.state.stderr import STDERR

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from socket import socket

    from portico.gateway.asked import Serving
    from portico.gateway.serving import Served
    from portico.server import Server
    from portico.transport.connection import Endpoint
    from portico.transport.http import Page
    from portico.windows.sharing import Shared
    from portico.wrapping import Wrapping

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
    """How to serve: over stdio the stdout that `take_stdout` gave, over HTTP who may come in."""

    out: int | None
    auth: str
    hosts: Sequence[str]
    token_file: str | None
    drain_s: float
    drain_notice_s: float


# Each serves until SIGTERM comes and returns the exit code: over HTTP at the address, which is
# `[HOST:]PORT`, or without one over stdin and stdout, until the client leaves.


def run_server(
    server: "Server", address: str | None = None, *, links: Sequence[Link] = (), **at: Unpack[At]
) -> int:
    """Serve a server of this process."""
    door = _door(address, **at)
    return _run(door, door.serve(server.endpoint(links)))


def run_wrap(wrapping: "Wrapping", address: str | None = None, **at: Unpack[At]) -> int:
    """Put a doorway in front of one upstream."""
    from portico.wrapping import Wrapped

    door = _door(address, **at)

    async def serve() -> bool:
        door.bind()
        wrapped = Wrapped(wrapping, alone=address is None, url=door.url)
        async with wrapped.running():
            whole = await door.serve(wrapped.endpoint, stop=wrapped.stop)
        if whole and wrapped.failure is not None:
            report(wrapped.failure.message)
        return whole and wrapped.failure is None

    return _run(door, serve())


def run_gateway(
    serving: "Serving", address: str | None = None, *, alone: bool = False, **at: Unpack[At]
) -> int:
    """Put a doorway in front of all configured servers."""
    from portico.windows.sharing import hosted, serve_shared

    door = _door(address, **at)
    shared = _shared(serving, door.drain_s, alone)
    if isinstance(door, _Stdio):
        return _run(door, serve_shared(shared, out=door.out))

    async def serve() -> bool:
        door.bind()  # before any server is started
        stop = asyncio.Event()
        async with hosted(shared, stop) as served:
            served.url = door.url
            return await door.serve(
                served.endpoint,
                served.door,
                watch=served.when_moved,
                pages={"/metrics": served.measured},
                limits=serving.config.gateway.limits,
                stop=stop,
            )

    return _run(door, serve())


def _shared(serving: "Serving", drain_s: float, alone: bool) -> "Shared[Served]":
    from portico.config.paths import control_folder
    from portico.windows.sharing import Shared

    latest = serving

    def now() -> "Serving":
        nonlocal latest
        latest = latest.fresh()
        return latest

    def own() -> "AbstractAsyncContextManager[Served]":
        from portico.gateway.serving import Served

        return Served(now()).running()

    return Shared(
        folder=control_folder(),
        # Not with the others: a name of its own is nobody else's.
        key=f"alone-{os.getpid()}" if alone else serving.key(),
        detaches=not alone,
        log=_owners_log,
        own=own,
        version=serving.version,
        account=lambda: now().account(),
        wants={"expose": serving.expose},
        drain_s=drain_s,
    )


def _owners_log() -> str:
    """The file for what an owner writes to stderr."""
    from portico.config.paths import log_file
    from portico.state.files import make_private

    folder = os.path.dirname(log_file())
    make_private(folder)
    return os.path.join(folder, "owner.log")


class _Stdio:
    """One client on stdin and stdout."""

    url = ""

    def __init__(self, out: int | None, drain_s: float) -> None:
        self.out, self.drain_s = out, drain_s

    def bind(self) -> None:
        """There is nothing to bind."""

    async def serve(self, endpoint: "Endpoint", *, stop: asyncio.Event | None = None) -> bool:
        """Serve until the client leaves or SIGTERM comes; False if that did not go well."""
        from portico.transport.pipes import serve_stdio

        return await serve_stdio(endpoint, out=self.out, drain_s=self.drain_s, stop=stop)

    def loop(self) -> asyncio.AbstractEventLoop:
        """The quickest loop for this."""
        from portico.transport.pipeloop import PipeLoop

        return PipeLoop()


class _Http:
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
        from portico.transport.web import bind

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
    ) -> bool:
        """Serve until SIGTERM comes; `find` gives the endpoints at further paths, and `watch` is
        given what to call when they may be others."""
        from portico.transport.doors import Doors
        from portico.transport.limits import Limits
        from portico.transport.web import serve_http as over_http

        def told(_: int) -> None:
            wanted = f" (wants the bearer token {self._token_place})" if self._token else ""
            report(f"serving {self.url}{wanted}")
            if self._host in _ANYWHERE and not self._hosts:
                report("others get in by a name that --allow-host gives; there is none")

        if not self._sockets:
            self.bind()
        app = Doors(
            endpoint,
            find or (lambda _: None),
            token=self._token,
            token_place=self._token_place,
            hosts=self._hosts,
            pages=pages,
            limits=Limits(**(limits or {})),
        )
        if watch is not None:
            watch(app.tidy)
        await over_http(
            app,
            sockets=self._sockets,
            drain_s=self.drain_s,
            drain_notice_s=self._drain_notice_s,
            ready=told,
            stop=stop,
        )
        return True

    def loop(self) -> asyncio.AbstractEventLoop:
        """The quickest loop for this."""
        try:
            from uvloop import new_event_loop
        except ImportError:
            return asyncio.new_event_loop()
        return new_event_loop()


def parse_address(text: str) -> tuple[str, int]:
    """`PORT`, `HOST:PORT` or `[IPV6]:PORT`; the host is loopback unless it is named."""
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise UsageError(f"{text!r} is not an address: give PORT, HOST:PORT or [IPV6]:PORT")
    return host.strip("[]") or _LOOPBACK[0], int(port)


def _door(address: str | None, *, out: int | None = None, **at: Any) -> _Stdio | _Http:
    return _Stdio(out, at.get("drain_s", DRAIN_S)) if address is None else _Http(address, **at)


def _run(door: _Stdio | _Http, serving: Coroutine[Any, Any, bool]) -> int:
    with asyncio.Runner(loop_factory=door.loop) as runner:
        return 0 if runner.run(_to_the_end(serving)) else 1


async def _to_the_end(serving: Coroutine[Any, Any, bool]) -> bool:
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
