"""The composition root: it alone knows every room."""

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from portico.model.errors import PorticoError
from portico.model.types import Link
from portico.server import Server

DRAIN_S = 30.0
_LEAVE_S = 1.0
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class UsageError(PorticoError):
    """What was asked for cannot be; the message says what can."""

    exit_code = 2


def serve_stdio(
    server: Server,
    *,
    links: Sequence[Link] = (),
    out: int | None = None,
    drain_s: float = DRAIN_S,
) -> None:
    """Serve one client over stdin and stdout until it leaves or SIGTERM comes."""
    from portico.transport.doorway import new_event_loop
    from portico.transport.pipes import serve_stdio as over_pipes

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_to_the_end(over_pipes(server.endpoint(links), out=out, drain_s=drain_s)))


def serve_http(
    server: Server,
    address: str,
    *,
    auth: str = "token",
    links: Sequence[Link] = (),
    hosts: Sequence[str] = (),
    drain_s: float = DRAIN_S,
    ready: Callable[[str, str | None], None] | None = None,
) -> None:
    """Serve over HTTP at `[HOST:]PORT` until SIGTERM comes; `ready` gets the URL and the token."""
    host, port = parse_address(address)
    if auth == "none" and host not in _LOOPBACK:
        raise UsageError(f"--auth none is for loopback only, and {host} is not: leave the token on")
    token = None
    if auth != "none":
        from portico.auth.token import door_token
        from portico.config.paths import state_dir

        token = door_token(state_dir())
    # Whoever binds to an address means to be reached by it.
    named = [host] if host not in (*_LOOPBACK, "", "0.0.0.0", "::") else []
    app = server.asgi(links, token=token, hosts=[*named, *hosts])

    def told(bound: int) -> None:
        shown = f"[{host}]" if ":" in host else host
        (ready or _say)(f"http://{shown}:{bound}/mcp", token)

    from portico.transport.web import serve_http as over_http

    try:
        _run(over_http(app, host, port, drain_s=drain_s, ready=told))
    except OSError as error:
        raise UsageError(f"cannot serve at {address}: {error.strerror or error}") from None


def parse_address(text: str) -> tuple[str, int]:
    """`PORT`, `HOST:PORT` or `[IPV6]:PORT`; the host is loopback unless it is named."""
    host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise UsageError(f"{text!r} is no address: give PORT, HOST:PORT or [IPV6]:PORT")
    return host.strip("[]") or _LOOPBACK[0], int(port)


def _say(url: str, token: str | None) -> None:
    """Tell the person at the terminal where to go; the token itself stays in its file."""
    sys.stderr.write(f"portico: serving {url}{'' if token is None else ' (bearer token wanted)'}\n")
    sys.stderr.flush()


def _run(serving: Coroutine[Any, Any, None]) -> None:
    try:
        import uvloop
    except ImportError:
        asyncio.run(_to_the_end(serving))
    else:
        uvloop.run(_to_the_end(serving))


async def _to_the_end(serving: Coroutine[Any, Any, None]) -> None:
    """Serve, then leave: a handler that takes no notice of being cancelled cannot keep us."""
    await serving
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left and (await asyncio.wait(left, timeout=_LEAVE_S))[1]:
        sys.stderr.write("portico: a handler does not stop; leaving without it\n")
        sys.stderr.flush()
        os._exit(0)
