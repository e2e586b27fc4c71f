"""Plans an import: which servers of a source are new, changed or known, and under which names."""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Struct

from portico.commands.setup.source import FoundServer, Source
from portico.core.config.paths import state_folder
from portico.core.documents.document import Document, open_document, parse
from portico.core.documents.edit import EntryChange
from portico.core.documents.names import valid_name, valid_names
from portico.core.documents.problems import ConfigError, dotted
from portico.core.documents.save import rewrite
from portico.core.documents.sections import is_own, names_in, section_for_new, sections
from portico.core.state.user_secret import user_secret

NEW, CHANGED, KNOWN, SKIPPED = "new", "changed", "known", "skipped"

_Records = dict[str, tuple[str, str]]
"""The name and the digest of each imported entry, by its file and its path in there."""


class PlannedServer(Struct, frozen=True):
    """One server of a source, and its part in an import."""

    server: FoundServer
    name: str
    """Its name in the config."""
    state: str
    """`new`, `changed` since it was imported, `known`, or `skipped` for the server's problem."""


class ImportPlan(Struct, frozen=True):
    """All servers of one source, with their parts in an import."""

    source: Source
    servers: tuple[PlannedServer, ...]

    def of(self, *states: str) -> list[PlannedServer]:
        """The servers in one of these states."""
        return [one for one in self.servers if one.state in states]


def plan_import(source: Source, config: str) -> ImportPlan:
    """Compare a source with the config and with what was imported before."""
    if os.path.exists(config) and os.path.samefile(source.path, config):
        raise ConfigError(f"{source.path}: is the config itself; import another file")
    document = open_document(config) if os.path.exists(config) else parse(config, "")
    records, taken = _read_records(), _taken(document)
    planned = []
    for server in source.servers:
        name, state = _placed(source, server, document, records, taken)
        taken |= {name} if state == NEW else set()
        planned.append(PlannedServer(server, name, state))
    return ImportPlan(source, tuple(planned))


def _placed(
    source: Source,
    server: FoundServer,
    document: Document,
    records: Mapping[str, tuple[str, str]],
    taken: Collection[str],
) -> tuple[str, str]:
    if server.problem:
        return server.name, SKIPPED
    there = section_for_new(document).table
    known, digest = records.get(_record_key(source, server), ("", ""))
    if known in there:
        return known, KNOWN if digest == _digest(server) else CHANGED
    names = (server.name, valid_name(f"{server.name}-{source.label}"))
    for name in names:
        if name not in taken:
            return name, NEW
        if there.get(name) == server.entry:
            return name, KNOWN
    return list(valid_names([*taken, server.name]))[-1], NEW


def _taken(document: Document) -> set[str]:
    """The names of all servers and components of the config."""
    found: set[str] = set()
    for section in sections(document):
        if not isinstance(section.table, dict):
            raise ConfigError(
                f"{document.path}: {dotted(section.path)} must be a table; fix it first"
            )
        found |= set(names_in(section, found)) | set(section.table)
    components = document.data.get("components")
    return found | set(components if isinstance(components, dict) else ())


def import_changes(
    document: Document, plan: ImportPlan, entries: Mapping[str, Mapping[str, Any]]
) -> Iterator[EntryChange]:
    """The changes of the config: these entries by name, and the further tables of the source."""
    section = section_for_new(document)
    for name, entry in entries.items():
        yield EntryChange((*section.path, name), entry)
    if plan.source.tables and not is_own(document):
        raise ConfigError(f"{document.path}: give a portico.toml as --config, to import settings")
    for table, value in plan.source.tables.items():
        yield from _table_changes(document.data, table, value)


def _table_changes(data: Mapping[str, Any], table: str, value: Any) -> Iterator[EntryChange]:
    """The parts of a table that the config does not set."""
    there = data.get(table)
    if isinstance(value, list):
        ids = [one.get("id") for one in there or () if isinstance(one, dict)]
        if new := [one for one in value if one.get("id") not in ids]:
            yield EntryChange((table,), new)
    elif table == "routing":
        rules = (there or {}).get("rules", ())
        if new := [one for one in value["rules"] if one not in rules]:
            yield EntryChange((table, "rules"), new)
    else:
        for key, one in value.items():
            if key not in (there or {}):
                yield EntryChange((table, key), one)


def record_import(source: Source, planned: Sequence[PlannedServer]) -> None:
    """Remember the entries as they are in the source now."""
    made = {_record_key(source, one.server): (one.name, _digest(one.server)) for one in planned}

    def change(old: bytes | None) -> bytes:
        return msgspec.json.encode({**_decoded(old), **made})

    rewrite(_records_file(), change)


def _record_key(source: Source, server: FoundServer) -> str:
    return f"{os.path.abspath(source.path)}:{dotted(server.at)}"


def _digest(server: FoundServer) -> str:
    secret = user_secret(state_folder())
    return blake2b(msgspec.json.encode(server.entry), key=secret[:64], digest_size=16).hexdigest()


def _records_file() -> str:
    return os.path.join(state_folder(), "imports.json")


def _read_records() -> _Records:
    try:
        with open(_records_file(), "rb") as file:
            return _decoded(file.read())
    except OSError:
        return {}


def _decoded(data: bytes | None) -> _Records:
    try:
        return msgspec.json.decode(data or b"{}", type=_Records)
    except msgspec.MsgspecError:
        return {}
