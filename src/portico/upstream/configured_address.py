"""The address of a server in the config."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from portico.config.schema import ServerEntry

if TYPE_CHECKING:
    from portico.wires.wire import Address


def address(server: ServerEntry, overheard: Callable[[str], None] | None = None) -> "Address":
    """Return the address of a configured server; a child gets a reduced environment."""
    if server.problem:
        from portico.upstream.unavailable import Unavailable

        return Unavailable(server.name, server.problem)
    if server.url:
        from portico.wires.streamable_http import Url

        return Url(
            server.url,
            title=server.name,
            headers=dict(server.headers),
            max_connections=server.max_connections,
        )
    from portico.process.environment import clean
    from portico.wires.child_wire import Command

    return Command(
        (server.command, *server.args),
        title=server.name,
        env=dict(server.env),
        cwd=server.cwd,
        environment=clean(os.environ),
        overheard=overheard,
    )
