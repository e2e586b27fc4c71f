"""The commands `run`, `wrap` and `serve` in a program of your own, with its links and members."""

from collections.abc import Mapping, Sequence

from portico.cli.main import command
from portico.model.types import Link
from portico.server import Server


def run(*argv: str, links: Sequence[Link] = ()) -> int:
    """`portico run` with these words after it, behind these links; the exit code."""
    return command("run", argv, links=tuple(links))


def wrap(*argv: str, links: Sequence[Link] = ()) -> int:
    """`portico wrap` with these words after it, behind these links; the exit code."""
    return command("wrap", argv, links=tuple(links))


def serve(
    *argv: str, links: Sequence[Link] = (), members: Mapping[str, Server] | None = None
) -> int:
    """`portico serve` with these words after it; the exit code.

    The links stand before every door. The members are servers of this program, served beside
    those of the config. Either makes it a gateway of its own, which no other window shares.
    """
    return command("serve", argv, links=tuple(links), members=dict(members or {}))
