"""`portico import`: the servers of a client's file, or of a predecessor's, into the config."""

from portico.commands.console.dialog import Dialog
from portico.commands.console.parser import Parser
from portico.commands.setup.importer import (
    Importer,
    add_import_options,
    add_move_options,
    config_of,
    sources_of,
)
from portico.commands.setup.moves import FileChanges, Mover, undo
from portico.core.config.client_table import SOURCES
from portico.core.model.wording import counted
from portico.upstream.process.family import refuse_below_agent


def main(argv: list[str]) -> int:
    """Import, or undo the last import of this source."""
    options = _parser().parse_args(argv)
    refuse_below_agent("portico import")
    if options.undo:
        return undo("import", options.source)
    config = config_of(options)
    dialog = Dialog(yes=options.yes, dry_run=options.dry_run)
    sources = sources_of(options.source)  # all are read before anything is written
    mover = Mover("import", options.source)
    importer = Importer(FileChanges(dialog, mover), config, options.secrets)
    done = [importer.run(source, options.only) for source in sources]
    if options.dry_run:
        return 0
    if not any(one.has_changes for one in done):
        dialog.out.print(f"{config} is unchanged")
        return 0
    count = sum(len(one.servers) for one in done)
    dialog.out.print(f"{config} now has {counted(count, 'server')} of {options.source}")
    for backup in mover.backups:
        dialog.out.print(f"backup: {backup}")
    return 0


def _parser() -> Parser:
    parser = Parser(
        prog="portico import",
        description="Import servers into the config: from a client's file, or from the config of "
        "a predecessor of Portico. Nothing is started. A second import changes nothing, except "
        "for servers that changed at their source.",
    )
    names = ", ".join(SOURCES)
    parser.add_argument("source", metavar="SOURCE|FILE", help=f"one of {names}; or a file")
    add_move_options(parser)
    add_import_options(parser)
    parser.add_flag("--undo", "take back the last import of this source")
    return parser
