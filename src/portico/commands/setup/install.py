"""Writes Portico's own entry into a client's file, in place of entries that were imported."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from portico.commands.setup.own_entry import NAME, is_portico, words_of
from portico.commands.setup.source import FoundServer
from portico.core.config.client_table import ClientFormat
from portico.core.documents.document import Document
from portico.core.documents.edit import EntryChange
from portico.core.documents.problems import ConfigError, Path


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
