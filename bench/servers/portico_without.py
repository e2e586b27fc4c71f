"""The `portico` command without one of its fast paths: PATH COMMAND WORDS...

Each function below disables one; the remaining path is that of all other requests. It
imports only what the command imports too, so that the start can be compared.
"""

import asyncio
import sys
from collections.abc import Callable
from typing import Any

from portico.commands.cli.main import main
from portico.edge.transport import calls_in_flight, client_connection, pipes


def _put(owner: Any, name: str, value: Any) -> None:
    getattr(owner, name)  # fails if the path was removed or renamed
    setattr(owner, name, value)


class _Nothing:
    """A type that no answer has."""


def _express() -> None:
    from portico.upstream.connections.relay import Relay

    _put(Relay, "route", lambda *_: None)


def _pending() -> None:
    for module in (calls_in_flight, client_connection):
        _put(module, "Pending", _Nothing)


def _eager_tasks() -> None:
    _put(calls_in_flight, "start_now", asyncio.create_task)


def _joined_answers() -> None:
    _put(pipes.StdioServer, "_write", lambda server, parts: server._write_out(parts))


WITHOUT: dict[str, Callable[[], None]] = {
    "express calls": _express,
    "Pending": _pending,
    "eager tasks": _eager_tasks,
    "joined answers": _joined_answers,
}

if __name__ == "__main__":
    WITHOUT[sys.argv.pop(1)]()
    sys.exit(main())
