"""`portico migrate`: a client's servers into the config, and Portico in their place."""

from portico.commands.console.dialog import Dialog
from portico.commands.console.parser import Parser
from portico.commands.setup.importer import Importer, add_import_options, config_of, sources_of
from portico.commands.setup.installer import add_install_options, client, take_over
from portico.commands.setup.moves import FileChanges, Mover, undo
from portico.core.config.client_table import CLIENTS
from portico.upstream.process.family import refuse_below_agent


def main(argv: list[str]) -> int:
    """Import a client's servers, and replace their entries there by Portico; or undo that."""
    options = _parser().parse_args(argv)
    refuse_below_agent("portico migrate")
    row = client(options.client)
    if options.undo:
        return undo("migrate", row.name)
    dialog = Dialog(yes=options.yes, dry_run=options.dry_run)
    files = FileChanges(dialog, Mover("migrate", row.name))
    importer = Importer(files, config_of(options), options.secrets)
    done = [importer.run(source, options.only) for source in sources_of(row.name)]
    take_over(files, row, options, done)
    return 0


def _parser() -> Parser:
    parser = Parser(
        prog="portico migrate",
        description="Import the servers of a client into the config, and replace their entries in "
        "its file by Portico's. Everything else in the file stays.",
    )
    parser.add_argument("client", metavar="CLIENT", help=f"one of {', '.join(CLIENTS)}")
    add_install_options(parser)
    add_import_options(parser)
    return parser
