"""The commands `run`, `wrap` and `serve` in a program of your own, with its links and members."""

from collections.abc import Mapping, Sequence

from portico.commands.cli.main import command
from portico.core.model.types import Link
from portico.library.server import Server


def run(*argv: str, links: Sequence[Link] = ()) -> int:
    """Run `portico run` with these arguments, behind these links; return the exit code."""
    return command("run", argv, links=tuple(links))


def wrap(*argv: str, links: Sequence[Link] = ()) -> int:
    """Run `portico wrap` with these arguments, behind these links; return the exit code."""
    return command("wrap", argv, links=tuple(links))


def serve(
    *argv: str, links: Sequence[Link] = (), members: Mapping[str, Server] | None = None
) -> int:
    """Run `portico serve` with these arguments; return the exit code.

    The links apply to every endpoint. The members are servers in this program, served beside the
    configured ones. With either, the gateway is separate: no other window shares it.
    """
    return command("serve", argv, links=tuple(links), members=dict(members or {}))
