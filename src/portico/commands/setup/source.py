"""Reads a file to import from: the servers of a client, or the config of a predecessor."""

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from portico.commands.console.secret_values import mapped
from portico.commands.setup.own_entry import is_portico
from portico.core.config.client_table import ClientFormat
from portico.core.config.clients import read_entry
from portico.core.config.entry import EntryReader
from portico.core.config.expand import Sources
from portico.core.config.read import OF_AGGREGATOR
from portico.core.documents.document import Document, open_document
from portico.core.documents.names import valid_name, valid_names
from portico.core.documents.places import LineIndex
from portico.core.documents.problems import ConfigError, ConfigProblem, Path, Report, quoted
from portico.core.documents.sections import Section, entries_in, sections

_DOLLAR = re.compile(r"\$(\w+)(?![\w}])", re.ASCII)
_OF_ORCHESTRATOR = ("main_agent", "rate_limiting", "logging", "server")
_ORDER = ("command", "args", "url", "type", "env", "headers", "cwd")
_WORKSPACE = "${workspaceFolder}"


class FoundServer(Struct, frozen=True, kw_only=True):
    """One server of a file."""

    at: Path
    """Its path in the file."""
    name: str
    """Its name as a valid one."""
    entry: Mapping[str, Any]
    """Its entry with Portico's keys."""
    raw: Any
    """Its entry as the file has it."""
    line: int
    problem: str = ""
    """Why it cannot be imported; empty if it can."""
    notes: tuple[str, ...] = ()
    twins: tuple[tuple[Path, Any], ...] = ()
    """The same entry for other projects: the path and the raw entry of each."""

    @property
    def key(self) -> str:
        """Its name in the file."""
        return str(self.at[-1])

    @property
    def shown(self) -> str:
        """The command line or the URL."""
        import shlex

        return str(self.entry.get("url")) if "url" in self.entry else shlex.join(self._argv)

    @property
    def _argv(self) -> list[str]:
        return [str(self.entry.get("command", "")), *self.entry.get("args", ())]


class Source(Struct, frozen=True, kw_only=True):
    """A file to import from, and everything that it contains for Portico."""

    path: str
    row: ClientFormat | None
    servers: tuple[FoundServer, ...] = ()
    tables: Mapping[str, Any] = {}
    """Further tables of the config, such as `agents`."""
    notes: tuple[str, ...] = ()
    """Settings that are converted to something else, or not at all."""
    is_of_project: bool = False
    """The file is in a project's folder: others may have written it."""

    @property
    def label(self) -> str:
        """A word that distinguishes its servers from others of the same name."""
        return self.row.name if self.row is not None else "imported"


def read_source(path: str, row: ClientFormat | None, *, is_of_project: bool = False) -> Source:
    """Read a file; ConfigError if it is malformed, or is Portico's own."""
    document = open_document(path)
    made = Source(path=path, row=row, is_of_project=is_of_project)
    if document.kind == "toml" and (
        (row is not None and row.name == "orchestrator")
        or any(key in document.data for key in _OF_ORCHESTRATOR)
    ):
        return _from_orchestrator(made, document)
    if document.duplicates:
        keys, line = document.duplicates[0]
        raise ConfigError(f"{path}:{line}: {quoted(str(keys[-1]))} is set twice; fix it first")
    found = sections(document)
    reading = _Reading(document, row, is_of_project)
    servers = [one for section in found for one in reading.servers(section)]
    tables, notes = _from_aggregator(document, servers)
    return Source(
        path=path,
        row=row,
        servers=tuple(_named_apart(servers)),
        tables=tables,
        notes=notes,
        is_of_project=is_of_project,
    )


class _Reading:
    """Reads the sections of one file."""

    def __init__(self, document: Document, row: ClientFormat | None, is_of_project: bool) -> None:
        self._document = document
        self._row = row
        self._is_of_project = is_of_project
        self._lines = LineIndex(document.text, document.kind)

    def servers(self, section: Section) -> Iterator[FoundServer]:
        path, table = self._document.path, section.table
        if not isinstance(table, dict):
            line = self._lines.line(section.path)
            raise ConfigError(f"{path}:{line}: {quoted(str(section.path[-1]))} must be a table")
        for key, entry in entries_in(self._document, section).items():
            yield self._server(section, key, entry)

    def _server(self, section: Section, key: str, entry: Any) -> FoundServer:
        report, at = Report(), (*section.path, key)
        found, names = read_entry(report, at, entry)
        if not report.problems:
            EntryReader(report, at, found, Sources({}, "/"), names).check_kind()
        folder = section.folder
        if folder and not os.path.isdir(folder):
            report.wrong(at, f"its project {folder} does not exist")
        elif not key.strip():
            report.wrong(at, "the server has no name", "add one")
        ours = self._ours(found)
        if not report.problems and is_portico(ours):
            report.wrong(at, "is Portico itself")
        name = valid_name(key)
        if name != key:
            ours.setdefault("title", key)
        return FoundServer(
            at=at,
            name=name,
            entry=ours,
            raw=section.table[key],
            line=self._lines.line(at),
            problem="; ".join(_without_place(one) for one in report.problems),
            notes=tuple(self._noted(one) for one in report.warnings if not self._expands(one)),
        )

    def _ours(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """The entry to write, without the values that go without saying."""
        made = {key: _as_data(found[key]) for key in sorted(found, key=_rank)}
        if self._row is not None and self._row.dollar_names:
            made = mapped(made, lambda text: _DOLLAR.sub(r"${\1}", text))
        if made.get("type") in ("", "stdio"):
            del made["type"]
        if made.get("enabled") is True:
            del made["enabled"]
        if made.get("cwd") == _WORKSPACE:  # a server runs in its window's folder anyway
            del made["cwd"]
        if self._is_of_project:
            made.setdefault("trust_hints", False)
        return {key: value for key, value in made.items() if value not in ("", [], {})}

    def _expands(self, warning: ConfigProblem) -> bool:
        return self._row is not None and self._row.dollar_names and warning.what.startswith("$NAME")

    def _noted(self, warning: ConfigProblem) -> str:
        return f"{self._document.path}:{self._lines.line(warning.at)}: {warning}"


def _rank(key: str) -> int:
    return _ORDER.index(key) if key in _ORDER else len(_ORDER)


def _without_place(problem: ConfigProblem) -> str:
    return f"{problem.what}{f'; {problem.remedy}' if problem.remedy else ''}"


def _as_data(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _as_data(one) for key, one in value.items()}
    return [*value] if isinstance(value, tuple) else value


def _named_apart(servers: list[FoundServer]) -> Iterator[FoundServer]:
    """The servers, each with a name of its own; an entry of several projects counts once."""
    kept: list[FoundServer] = []
    for one in servers:
        known = next((n for n, other in enumerate(kept) if _same(one, other)), None)
        if known is None:
            kept.append(one)
        else:  # it runs in the folder of each window
            first = kept[known]
            kept[known] = replace(
                first, entry=_anywhere(first), twins=(*first.twins, (one.at, one.raw))
            )
    taken: set[str] = set()
    for one in kept:
        folder = os.path.basename(str(one.at[1])) if one.at[0] == "projects" else "2"
        names = (one.name, valid_name(f"{one.name}-{folder}"), *valid_names([*taken, one.name]))
        name = next(name for name in names if name not in taken)
        taken.add(name)
        yield replace(one, name=name)


def _same(one: FoundServer, other: FoundServer) -> bool:
    return one.key == other.key and _anywhere(one) == _anywhere(other)


def _anywhere(server: FoundServer) -> dict[str, Any]:
    """Its entry without the folder of its project."""
    entry = dict(server.entry)
    if server.at[0] == "projects" and entry.get("cwd") == server.at[1]:
        del entry["cwd"]
    return entry


def _from_aggregator(
    document: Document, servers: list[FoundServer]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The settings of the aggregator: timeouts go to its servers, search to its table."""
    data, notes = document.data, []
    timeouts: dict[str, float] = {}
    for key, ours, factor in (
        ("idle_timeout_minutes", "idle", 60),
        ("call_timeout_seconds", "call", 1),
    ):
        value = data.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            timeouts[ours] = value * factor
        elif value is not None:
            notes.append(f"{key} is not imported: it must be a number above 0")
    for number, one in enumerate(servers) if timeouts else ():
        entry = {**one.entry, "timeouts": {**timeouts, **one.entry.get("timeouts", {})}}
        servers[number] = replace(one, entry=entry)
    search = data.get("search") if any(key in data for key in OF_AGGREGATOR) else None
    limit = search.get("default_limit") if isinstance(search, dict) else None
    is_valid = isinstance(limit, int) and not isinstance(limit, bool) and 1 <= limit <= 50
    tables = {"search": {"default_limit": limit}} if is_valid else {}
    if "gemini_api_key" in data or (isinstance(search, dict) and "model" in search):
        model = search.get("model", "") if isinstance(search, dict) else ""
        named = f" and model = {model!r}" if isinstance(model, str) and model else ""
        notes.append(
            "gemini_api_key and search.model are not imported: to rerank with Gemini, set "
            f"GEMINI_API_KEY, and add [search.rerank] with provider = 'gemini'{named}"
        )
    return tables, tuple(notes)


def _from_orchestrator(source: Source, document: Document) -> Source:
    from portico.core.config.orchestrator import from_orchestrator

    found = from_orchestrator(document.data)
    notes = (*(f"not imported: {one}" for one in found.rejected), *found.notes)
    return replace(source, tables=found.tables, notes=notes)
