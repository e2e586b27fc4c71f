"""`portico init`: a guided start, from the clients that are here to a config that they use."""

import argparse
import asyncio
import os
from collections.abc import Iterator, Sequence

from portico.commands.console.argument_types import repeatable
from portico.commands.console.dialog import Dialog
from portico.commands.console.parser import Parser
from portico.commands.console.server_login import WITHIN_S, ServerLogin, login_place
from portico.commands.setup.import_plan import PlannedServer
from portico.commands.setup.importer import (
    Imported,
    Importer,
    add_move_options,
    add_secrets,
    config_of,
)
from portico.commands.setup.installer import add_per_server, take_over
from portico.commands.setup.moves import FileChanges, Mover
from portico.commands.setup.source import Source, read_source
from portico.core.config.client_table import CLIENTS, SOURCES, ClientFormat, this_system
from portico.core.config.paths import working_folder
from portico.core.documents.problems import ConfigError, suggestion
from portico.core.model.errors import PorticoError
from portico.upstream.auth.configured_login import login_store
from portico.upstream.process.family import refuse_below_agent

_EMPTY = b"# Portico's config. `portico servers add NAME COMMAND` adds a server.\n"


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
    twice = [] if options.no_install else _install(options, dialog, imported)
    servers = [server for one in imported for server in one.servers]
    logins = OfferedLogins(dialog, options.config, offers=not options.no_login)
    for line in _next_steps(dialog, servers, twice, logins.run(servers, options.login)):
        dialog.out.print(line)
    return 0


def _import(options: argparse.Namespace, dialog: Dialog) -> list[Imported]:
    """Import from each client that is here, or from those that were named."""
    done: list[Imported] = []
    sources = list(_sources(options.source, dialog))
    if not sources:
        dialog.out.print("no client with a file of servers was found here")
    for source in sources:
        assert source.row is not None
        files = FileChanges(dialog, Mover("import", source.row.name))
        done.append(Importer(files, config_of(options), options.secrets).run(source))
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


def _install(
    options: argparse.Namespace, dialog: Dialog, imported: Sequence[Imported]
) -> list[str]:
    """Install in each client that is here, or in those that were named; return the clients that
    have servers twice then."""
    twice: list[str] = []
    for row in CLIENTS.values():
        if row.name in options.install if options.install else row.is_there(this_system()):
            own = [one for one in imported if one.source.row is row and one.servers]
            moves = bool(own) and _moves(options, dialog, row, own)
            try:
                files = FileChanges(dialog, Mover("migrate" if moves else "install", row.name))
                if take_over(files, row, options, own if moves else ()) and own and not moves:
                    twice.append(row.name)
            except ConfigError as error:
                dialog.note(f"{error}; {row.title} is skipped")
    return twice


def _moves(
    options: argparse.Namespace, dialog: Dialog, row: ClientFormat, own: Sequence[Imported]
) -> bool:
    """True if the imported servers of a client are to leave its files, by a flag or an answer;
    `--yes` alone leaves them there."""
    if options.migrate or options.no_migrate or not dialog.asks:
        return bool(options.migrate)
    names = ", ".join(server.server.key for one in own for server in one.servers)
    dialog.out.print(f"{row.title} would have these twice, its own and Portico's: {names}")
    return dialog.confirm(f"Remove them from {row.title}?")


def _next_steps(
    dialog: Dialog, imported: Sequence[PlannedServer], twice: list[str], logins: list[str]
) -> Iterator[str]:
    for name in logins:
        yield f"`portico servers login {name}` logs in, if {name} requires it"
    if imported and not dialog.dry_run:
        yield "`portico servers test` starts each server once and shows its tools"
    for client in twice:
        yield f"`portico migrate {client}` removes its own servers, which it now has twice"


def _check_names(given: list[str], known: dict[str, ClientFormat]) -> None:
    for name in given:
        if name not in known:
            raise ConfigError(f"there is no client {name!r}; {suggestion(name, known)}")


def _parser() -> Parser:
    parser = Parser(
        prog="portico init",
        description="Find the clients that are here, show what each of their servers would run, "
        "import those that you pick, write the config, install Portico in the clients, and log in "
        "where you choose to. No server is started. `--yes` never logs in.",
    )
    add_move_options(parser)
    add = parser.add_argument
    repeatable(add, "--from", str, "CLIENT", "import from this client only")
    parser.add_flag("--no-import", "import nothing")
    repeatable(add, "--install", str, "CLIENT", "install in this client only")
    parser.add_flag("--no-install", "install nowhere")
    either = parser.add_mutually_exclusive_group()
    moving = "remove the imported servers from the clients in which Portico is installed"
    either.add_argument("--migrate", action="store_true", help=moving)
    staying = "leave them there, without a question"
    either.add_argument("--no-migrate", action="store_true", help=staying)
    repeatable(add, "--login", str, "SERVER", "log in at this server, in your browser")
    parser.add_flag("--no-login", "ask about no login")
    add_secrets(parser)
    add_per_server(parser)
    return parser


class OfferedLogins:
    """Logs in after an answer of the person or by a flag, never by `--yes`."""

    def __init__(self, dialog: Dialog, config: str | None, *, offers: bool) -> None:
        """Without `offers` there are no questions."""
        self._dialog = dialog
        self._config = config
        self._asks = offers and dialog.asks

    def run(self, imported: Sequence[PlannedServer], named: Sequence[str]) -> list[str]:
        """Log in at the named servers, and ask about each other one; return the servers that are
        left."""
        left = [name for name in _remote(imported) if name not in named]
        if self._dialog.dry_run:
            return [*named, *left]
        wanted = [*named, *(name for name in left if self._is_wanted(name))]
        done = [name for name in wanted if self._log_in(name)]
        return [name for name in (*named, *left) if name not in done]

    def _is_wanted(self, name: str) -> bool:
        question = f"Log in at {name} now, in your browser? [y/N] "
        return self._asks and self._dialog.choose(question, "ny") == "y"

    def _log_in(self, name: str) -> bool:
        try:
            place, settings = login_place(name, self._config)
            store = login_store()
            store.check_writable()
            login = ServerLogin(place, settings, store)
            asyncio.run(login.obtain((), WITHIN_S, opens_browser=True))
        except PorticoError as error:  # the rest of the setup is done, and stays
            self._dialog.note(str(error))
            return False
        self._dialog.out.print(f"logged in at {name}")
        return True


def _remote(imported: Sequence[PlannedServer]) -> Iterator[str]:
    """The servers that may require a login: those at a URL without headers of their own."""
    for one in imported:
        if "url" in one.server.entry and "headers" not in one.server.entry:
            yield one.name
