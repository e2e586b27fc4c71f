"""Serves a server of the user's program, for `server.run()`."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from portico.commands.cli.main import embedded
from portico.commands.console.stderr import keep_stdout, log_to_stderr, report_waiting
from portico.core.model.types import Link
from portico.library.server import Server

if TYPE_CHECKING:
    from portico.gateway.app import HttpOptions


def run_server(
    server: Server, http: str | None, links: Sequence[Link], options: "HttpOptions"
) -> int:
    """Serve a server of the user's program as `portico run` serves its file."""
    if _is_in_event_loop():
        raise RuntimeError(
            "server.run() cannot be called in a running event loop; "
            "call it outside, or serve `server.asgi()`"
        )

    def serve() -> int:
        from portico.gateway.app import app_http, app_stdio, server_app

        out = keep_stdout(http)
        log_to_stderr()
        make = server_app(server, links)
        if http is not None:
            return app_http(make, http, **options)
        report_waiting(server.name, 'server.run(http="8000")')
        return app_stdio(make, out=out, drain_s=options["drain_s"])

    return embedded(serve)


def _is_in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
