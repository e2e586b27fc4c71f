"""The address of a server in the config."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from portico.core.config.schema import ServerEntry
from portico.upstream.connections.handshake import HandshakeLimits
from portico.upstream.process.install_commands import install_of, install_seconds

if TYPE_CHECKING:
    from portico.upstream.wires.wire import Address


def address(server: ServerEntry, on_stderr: Callable[[str], None] | None = None) -> "Address":
    """Return the address of a configured server; a child gets a reduced environment,
    and a sandboxed one none."""
    if server.problem:
        from portico.upstream.connections.unavailable import Unavailable

        return Unavailable(server.name, server.problem)
    if server.url:
        from portico.upstream.auth.configured_login import login_credentials
        from portico.upstream.wires.credentials import NO_CREDENTIALS
        from portico.upstream.wires.streamable_http import Url

        login = login_credentials(server.url, server.headers, server.name, server.auth)
        return Url(
            server.url,
            title=server.name,
            headers=dict(server.headers),
            credentials=login or NO_CREDENTIALS,
            max_connections=server.max_connections,
        )
    from portico.upstream.process.environment import clean
    from portico.upstream.wires.child_wire import Command

    argv = (server.command, *server.args)
    return Command(
        argv,
        install_s=install_seconds(argv, server.timeouts.install),
        title=server.name,
        env=dict(server.env),
        cwd=server.cwd,
        environment={} if server.is_sandboxed else clean(os.environ),
        on_stderr=on_stderr,
    )


def configured_limits(server: ServerEntry) -> HandshakeLimits:
    """Return the timeouts of a configured server."""
    times = server.timeouts
    argv = (server.command, *server.args) if server.command else ()
    install = install_of(argv, times.install)
    return HandshakeLimits(init_s=times.init, list_s=times.list, call_s=times.call, install=install)
