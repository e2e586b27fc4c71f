"""Finds the tables of servers in a file: our own, or those of the client that wrote it."""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from portico.core.documents.document import Document
from portico.core.documents.names import valid_names
from portico.core.documents.problems import Path

_JSON: tuple[Path, ...] = (("mcpServers",), ("servers",))
_OTHER_JSON: tuple[Path, ...] = (("context_servers",), ("mcp", "servers"), ("mcp",))
_CODEX: Path = ("mcp_servers",)


class Section(Struct, frozen=True):
    """A table of servers in a file."""

    path: Path
    table: Any
    of_client: bool
    """It follows a client's rules: unknown keys are warnings, and names are made valid."""
    folder: str = ""
    """The project's folder, in which these servers run, if the file has a table for each."""


def sections(document: Document) -> list[Section]:
    """The tables of servers in a file."""
    if document.kind == "toml":
        own = _present(document, (("servers",),), of_client=False)
        return own + _present(document, (_CODEX,), of_client=True)
    found = _present(document, _JSON, of_client=True)
    projects = _of_projects(document)
    return [*(found or _present(document, _OTHER_JSON, of_client=True)[:1]), *projects]


def names_in(section: Section, taken: Iterable[str]) -> dict[str, str]:
    """Each key of a section by its server's name; `taken` are the names already in use."""
    if not isinstance(section.table, dict):
        return {}
    if not section.of_client:
        return {key: key for key in section.table}
    others = list(taken)
    valid = list(valid_names([*others, *section.table]).items())
    return dict(valid[len(others) :])


def entries_in(document: Document, section: Section) -> dict[str, Any]:
    """Each entry of a section by its key, with the settings that the file has outside of it."""
    if not isinstance(section.table, dict):
        return {}
    out = excluded_servers(document, section)
    found = {}
    for key, entry in section.table.items():
        more: dict[str, Any] = {"disabled": True} if key in out else {}
        before: dict[str, Any] = {}
        if section.folder and isinstance(entry, dict) and "command" in entry:
            before = {"cwd": section.folder}
        found[key] = {**before, **entry, **more} if isinstance(entry, dict) else entry
    return found


def section_for_new(document: Document) -> Section:
    """The table for a new server; empty if it has to be created."""
    found = next((one for one in sections(document) if not one.folder), None)
    if found is not None:
        return found
    return Section(
        ("servers",) if document.kind == "toml" else _JSON[0], {}, document.kind != "toml"
    )


def is_codex(document: Document) -> bool:
    """True for the settings file of a client that writes TOML."""
    return document.kind == "toml" and _CODEX[0] in document.data and "servers" not in document.data


def is_own(document: Document) -> bool:
    """True if the tables beside the servers are Portico's, not the settings of a client."""
    return document.kind == "toml" and not is_codex(document)


def _present(document: Document, paths: tuple[Path, ...], *, of_client: bool) -> list[Section]:
    found = []
    for path in paths:
        table: Any = document.data
        for key in path:
            table = table.get(key) if isinstance(table, dict) else None
        # Some clients keep settings under `mcp`, and no servers.
        has_servers = path != ("mcp",) or (
            isinstance(table, dict) and all(isinstance(one, dict) for one in table.values())
        )
        if table is not None and has_servers:
            found.append(Section(path, table, of_client))
    return found


def _of_projects(document: Document) -> list[Section]:
    """The tables that Claude Code keeps in the user's file, one for each project."""
    projects = document.data.get("projects")
    found = []
    for folder, about in projects.items() if isinstance(projects, dict) else ():
        table = about.get(_JSON[0][0]) if isinstance(about, dict) else None
        if table:
            path = ("projects", folder, *_JSON[0])
            found.append(Section(path, table, of_client=True, folder=folder))
    return found


def excluded_servers(document: Document, section: Section) -> set[str]:
    """The servers that a client's settings exclude outside of their entries."""
    about = document.data.get("mcp") if section.path == _JSON[0] else None
    if not isinstance(about, dict) or not isinstance(section.table, dict):
        return set()
    allowed, excluded = about.get("allowed"), about.get("excluded")
    out = {name for name in section.table if isinstance(excluded, list) and name in excluded}
    if isinstance(allowed, list) and allowed:
        out |= {name for name in section.table if name not in allowed}
    return out
