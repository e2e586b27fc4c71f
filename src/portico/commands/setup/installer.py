"""Writes Portico's own entry into a client's file, for `install`, `migrate` and `init`.

It may replace entries that were imported.
"""

import argparse
import os
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from portico.commands.console.parser import Parser
from portico.commands.setup.import_plan import PlannedServer
from portico.commands.setup.importer import Imported, add_move_options, config_of
from portico.commands.setup.moves import FileChanges
from portico.commands.setup.own_entry import NAME, is_portico, launcher, own_entries, words_of
from portico.commands.setup.source import FoundServer
from portico.core.config.client_table import CLIENTS, ClientFormat, this_system
from portico.core.config.schema import ComponentEntry, ServerEntry
from portico.core.documents.document import Document
from portico.core.documents.edit import EntryChange
from portico.core.documents.problems import ConfigError, Path, suggestion
from portico.core.model.wording import counted

COST = "each window runs a process of about 27 MB for each of them"


def add_install_options(parser: Parser) -> None:
    """Add the options of the commands that change a client's file."""
    add_move_options(parser)
    add_per_server(parser)
    parser.add_flag("--undo", "take back the last change of this client's file")


def add_per_server(parser: Parser) -> None:
    """Add --per-server."""
    parser.add_flag("--per-server", f"write an entry for each server: {COST}")


def client(name: str) -> ClientFormat:
    """The row of a client; ConfigError if there is none of this name."""
    if name not in CLIENTS:
        raise ConfigError(f"there is no client {name!r}; {suggestion(name, CLIENTS)}")
    return CLIENTS[name]


def install(
    files: FileChanges,
    row: ClientFormat,
    options: argparse.Namespace,
    moved: Sequence[PlannedServer] = (),
) -> bool:
    """Write Portico's entries into a client's file, in place of the moved ones; return False if
    the person declines."""
    path, dialog = row.file(this_system()), files.dialog
    servers = _servers(config_of(options), moved) if options.per_server else ()
    config = config_of(options) if options.config else ""
    entries = own_entries(row, launcher(row), servers, config)
    notes: list[str] = []
    gone = [one.server for one in moved]

    def changes(document: Document) -> Iterator[EntryChange]:
        notes[:] = warnings(document, row)
        yield from removals(document, gone)
        yield from own_changes(document, row, entries, [server.at for server in gone])

    if not files.differs(path, changes):
        dialog.out.print(f"{row.title}: {path} is unchanged")
        return True
    dialog.out.print(f"{row.title}: {path}", "bold")
    for server in gone:
        dialog.out.print(f"  - {server.key}")
    for name, entry in entries.items():
        dialog.out.print(f"  + {name}: {shlex.join(words_of(entry))}")
    if servers:
        dialog.note(f"{counted(len(servers), 'server')}: {COST}")
    if not dialog.confirm("Write this?"):
        dialog.out.print(f"{path} is unchanged")
        return False
    files.apply(path, changes, [server.entry for server in gone])
    for note in notes:
        dialog.note(note)
    if not dialog.dry_run:
        dialog.out.print(f"written; restart {row.title} to use it")
        for backup in files.mover.backups:
            dialog.out.print(f"backup: {backup}")
    return True


def take_over(
    files: FileChanges,
    row: ClientFormat,
    options: argparse.Namespace,
    done: Sequence[Imported],
) -> bool:
    """Replace the imported entries of a client's files by Portico's; return False if the person
    declines."""
    own = row.file(this_system())
    moved = [server for one in done if one.source.path == own for server in one.servers]
    if not install(files, row, options, moved):
        return False
    for one in done:
        if one.servers and one.source.path != own:  # a file that the client no longer writes
            servers = [planned.server for planned in one.servers]
            entries = [server.entry for server in servers]
            files.apply(one.source.path, partial(removals, servers=servers), entries)
    return True


def _servers(config: str, moved: Sequence[PlannedServer]) -> list[str]:
    """The servers that get an entry each; in a dry run, those that would be imported too."""
    from portico.core.config.read import read

    found: Mapping[str, ServerEntry | ComponentEntry] = {}
    if os.path.exists(config):
        found = read(config, only=()).entries
    names = [name for name, entry in found.items() if entry.enabled]
    names += [one.name for one in moved if one.name not in found]
    if not names:
        raise ConfigError(f"{config} has no servers; import or add one first")
    return names


def own_changes(
    document: Document,
    row: ClientFormat,
    entries: Mapping[str, Mapping[str, Any]],
    replaced: Collection[Path] = (),
) -> Iterator[EntryChange]:
    """The changes that write these entries; keys that a person added to one of them stay.

    Entries of other servers are replaced only at the given paths.
    """
    section = _section(document, row)
    table = _at(document.data, section) or {}
    if not isinstance(table, dict):
        raise ConfigError(f"{document.path}: {section[-1]} must be a table; fix it first")
    for name, there in table.items():
        if name not in entries and _is_of(row, there):
            yield EntryChange((*section, name))
    for name, entry in entries.items():
        there = None if (*section, name) in replaced else table.get(name)
        if there is not None and not _is_portico(there):
            raise ConfigError(
                f"{document.path}: {name} is a server of its own there; "
                f"import it with `portico migrate {row.name}`, or rename it"
            )
        wanted = {**there, **entry} if isinstance(there, dict) else entry
        if there != wanted:
            yield EntryChange((*section, name), wanted)


def removals(document: Document, servers: Sequence[FoundServer]) -> Iterator[EntryChange]:
    """The changes that remove imported entries, unless the file has others there by now."""
    for server in servers:
        for at, raw in ((server.at, server.raw), *server.twins):
            if _at(document.data, at) == raw:
                yield EntryChange(at)


def warnings(document: Document, row: ClientFormat) -> Iterator[str]:
    """Notes about settings of the client that keep Portico's entry from being used."""
    about = document.data.get("mcp") if row.section == ("mcpServers",) else None
    allowed = about.get("allowed") if isinstance(about, dict) else None
    if isinstance(allowed, list) and allowed and NAME not in allowed:
        yield f"{document.path}: mcp.allowed does not list {NAME}; add it there"


def _section(document: Document, row: ClientFormat) -> Path:
    newer = (*row.section, "servers")
    is_newer = row.section == ("mcp",) and isinstance(_at(document.data, newer), dict)
    return newer if is_newer else row.section


def _is_portico(entry: Any) -> bool:
    return isinstance(entry, dict) and is_portico(entry)


def _is_of(row: ClientFormat, entry: Any) -> bool:
    """True if an entry was written by an install in this client."""
    return _is_portico(entry) and words_of(entry)[-2:] == ["--client", row.name]


def _at(data: Any, path: Path) -> Any:
    for key in path:
        data = data.get(key) if isinstance(data, dict) else None
    return data
