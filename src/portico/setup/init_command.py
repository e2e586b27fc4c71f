"""`portico init`: a guided start, from the clients that are here to a config that they use."""

import argparse
import os
from collections.abc import Iterator
from importlib.util import find_spec

from portico.config.client_table import CLIENTS, SOURCES, ClientFormat, this_system
from portico.config.paths import working_folder
from portico.config.problems import ConfigError, suggestion
from portico.console.argument_types import repeatable
from portico.console.dialog import Dialog
from portico.console.usage import Parser
from portico.process.family import refuse_below_agent
from portico.setup.file_changes import FileChanges
from portico.setup.import_plan import PlannedServer
from portico.setup.importer import Importer, add_move_options, add_secrets, config_of
from portico.setup.installer import add_per_server, install
from portico.setup.moves import Mover
from portico.setup.source import Source, read_source

_EMPTY = b"# Portico's config. `portico servers add NAME COMMAND` adds a server.\n"
_LOGIN = "portico.cli.servers_login"
"""The module of `portico servers login`, in versions that have it."""


def main(argv: list[str]) -> int:
    """Import, write the config and install, each after a question or by a flag."""
    options = _parser().parse_args(argv)
    refuse_below_agent("portico init")
    options.source = vars(options)["from"]
    _check_names(options.source, SOURCES)
    _check_names(options.install, CLIENTS)
    dialog = Dialog(yes=options.yes, dry_run=options.dry_run)
    imported = [] if options.no_import else _import(options, dialog)
    _show_project(dialog)
    _write_config(config_of(options), dialog)
    if not options.no_install:
        _install(options, dialog)
    for line in _next_steps(options, imported):
        dialog.out.print(line)
    return 0


def _import(options: argparse.Namespace, dialog: Dialog) -> list[PlannedServer]:
    """Import from each client that is here, or from those that were named."""
    done: list[PlannedServer] = []
    sources = list(_sources(options.source, dialog))
    if not sources:
        dialog.out.print("no client with a file of servers was found here")
    for source in sources:
        assert source.row is not None
        files = FileChanges(dialog, Mover("import", source.row.name))
        done += Importer(files, config_of(options), options.secrets).run(source).servers
    return done


def _sources(names: list[str], dialog: Dialog) -> Iterator[Source]:
    """The files of clients that contain servers or settings; a malformed file is a note."""
    for row in SOURCES.values():
        if names and row.name not in names:
            continue
        for path in row.sources(this_system()):
            try:
                source = read_source(path, row)
            except ConfigError as error:
                dialog.note(f"{error}; the file is skipped")
                continue
            if source.servers or source.tables:
                yield source


def _show_project(dialog: Dialog) -> None:
    """Name the files of this folder's project, which others may have written: they are never
    imported here, not even with `--yes`."""
    folder = working_folder()
    paths = [path for row in CLIENTS.values() for path in row.project_files(folder) if folder]
    for path in dict.fromkeys(paths):
        dialog.out.print(f"{path} belongs to this project and is not imported here;")
        dialog.out.print(f"  `portico import {path}` shows its commands first")


def _write_config(config: str, dialog: Dialog) -> None:
    if dialog.dry_run:
        return
    if not os.path.exists(config):
        Mover("init", "config").change(config, lambda old: _EMPTY if old is None else old)
    dialog.out.print(f"the config is {config}")


def _install(options: argparse.Namespace, dialog: Dialog) -> None:
    """Install in each client that is here, or in those that were named."""
    for row in CLIENTS.values():
        if row.name in options.install if options.install else row.is_there(this_system()):
            try:
                install(FileChanges(dialog, Mover("install", row.name)), row, options)
            except ConfigError as error:
                dialog.note(f"{error}; {row.title} is skipped")


def _next_steps(options: argparse.Namespace, imported: list[PlannedServer]) -> Iterator[str]:
    has_login = find_spec(_LOGIN) is not None
    for one in imported:
        if has_login and "url" in one.server.entry and "headers" not in one.server.entry:
            yield f"`portico servers login {one.name}` logs in, if {one.name} requires it"
    if imported and not options.dry_run:
        yield "`portico servers test` starts each server once and shows its tools"
        yield "`portico migrate CLIENT` removes the servers from a client that it now has twice"


def _check_names(given: list[str], known: dict[str, ClientFormat]) -> None:
    for name in given:
        if name not in known:
            raise ConfigError(f"there is no client {name!r}; {suggestion(name, known)}")


def _parser() -> Parser:
    parser = Parser(
        prog="portico init",
        description="Find the clients that are here, show what each of their servers would run, "
        "import those that you pick, write the config, and install Portico in the clients. "
        "Nothing is started.",
    )
    add_move_options(parser)
    add = parser.add_argument
    repeatable(add, "--from", str, "CLIENT", "import from this client only")
    add("--no-import", action="store_true", help="import nothing")
    repeatable(add, "--install", str, "CLIENT", "install in this client only")
    add("--no-install", action="store_true", help="install nowhere")
    add_secrets(parser)
    add_per_server(parser)
    return parser
