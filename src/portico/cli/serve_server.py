"""Serves one `Server`, for `portico run` and `server.run()`."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from portico.cli.main import embedded
from portico.cli.stderr import keep_stdout, log_to_stderr, report_waiting
from portico.model.types import Link
from portico.server import Server

if TYPE_CHECKING:
    from portico.app import HttpOptions


def serve_server(
    server: Server,
    http: str | None,
    links: Sequence[Link],
    out: int | None,
    options: "HttpOptions",
    over_http: str,
) -> int:
    """Serve over stdio, or over HTTP at an address; return the exit code. `over_http` is the
    hint at a terminal."""
    if http is None:
        from portico.app import serve_stdio

        report_waiting(server.name, over_http)
        return serve_stdio(server, links=links, out=out, drain_s=options["drain_s"])
    from portico.app import serve_http

    serve_http(server, http, links=links, **options)
    return 0


def run_server(
    server: Server, http: str | None, links: Sequence[Link], options: "HttpOptions"
) -> int:
    """Serve a server of the user's program as `portico run` serves its file."""
    if _is_in_event_loop():
        how = "call it outside, or serve `server.asgi()`"
        raise RuntimeError(f"server.run() cannot be called in a running event loop; {how}")

    def serve() -> int:
        out = keep_stdout(http)
        log_to_stderr()
        return serve_server(server, http, links, out, options, 'server.run(http="8000")')

    return embedded(serve)


def _is_in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
