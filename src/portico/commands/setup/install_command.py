"""`portico install`: Portico's entry in the file of a client."""

import argparse

from portico.commands.console.dialog import Dialog
from portico.commands.console.parser import Parser
from portico.commands.setup.installer import add_install_options, client, install
from portico.commands.setup.moves import FileChanges, Mover, undo
from portico.core.config.client_table import CLIENTS, ClientFormat, this_system
from portico.core.documents.problems import ConfigError
from portico.upstream.process.family import refuse_below_agent


def main(argv: list[str]) -> int:
    """Install Portico in one client, or in all that are here; or undo that."""
    options = _parser().parse_args(argv)
    refuse_below_agent("portico install")
    rows = _rows(options)
    if options.undo:
        return undo("install", *(row.name for row in rows))
    dialog = Dialog(yes=options.yes, dry_run=options.dry_run)
    for row in rows:
        install(FileChanges(dialog, Mover("install", row.name)), row, options)
    return 0


def _rows(options: argparse.Namespace) -> list[ClientFormat]:
    """The clients to install in."""
    if options.client is not None and not options.all:
        return [client(options.client)]
    if options.client is not None or not options.all:
        raise ConfigError(f"give one client, or --all; choose from {', '.join(CLIENTS)}")
    system = this_system()
    rows = [row for row in CLIENTS.values() if row.is_there(system)]
    if not rows:
        raise ConfigError(f"no client was found here; choose from {', '.join(CLIENTS)}")
    return rows


def _parser() -> Parser:
    parser = Parser(
        prog="portico install",
        description="Write Portico's entry into the file of a client, which then has all "
        "configured servers. Everything else in the file stays.",
    )
    add = parser.add_argument
    add("client", nargs="?", metavar="CLIENT", help=f"one of {', '.join(CLIENTS)}")
    parser.add_flag("--all", "install in every client that is found here")
    add_install_options(parser)
    return parser
