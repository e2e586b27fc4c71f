"""Reads and checks a config file, and reports all its problems at once."""

import os
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from portico.core.config.auth_settings import default_settings
from portico.core.config.entry import read_server
from portico.core.config.expand import Sources
from portico.core.config.publishing import Publishing, read_publishing
from portico.core.config.schema import (
    KEYS_OF,
    OF_AGENTS,
    OF_PUBLISHING,
    TOP,
    ClientSettings,
    ComponentEntry,
    Config,
    Gateway,
    Group,
    Rerank,
    Search,
    ServerEntry,
    TaskSettings,
)
from portico.core.config.values import check_url, read_table, readers, report_unknown
from portico.core.documents.document import Document, open_document
from portico.core.documents.names import is_valid_name, valid_name
from portico.core.documents.problems import (
    MAX_LISTED,
    ConfigError,
    ConfigProblem,
    Path,
    Report,
    dotted,
    quoted,
)
from portico.core.documents.sections import (
    Section,
    entries_in,
    is_codex,
    is_own,
    names_in,
    sections,
)
from portico.core.documents.trust import group_warning

if TYPE_CHECKING:
    from portico.core.config.agents_schema import AgentsConfig
    from portico.core.config.schema import Profile

Entries = Mapping[str, ServerEntry | ComponentEntry]
_BESIDE = ("$schema", "inputs", "projects", "mcp", "servers", "context_servers")
"""Top-level keys of clients' files that have a meaning beside the servers."""
OF_AGGREGATOR = ("gemini_api_key", "idle_timeout_minutes", "call_timeout_seconds")
_OWN_TABLES = (
    *("gateway", "search", "tasks", "auth", "components", "groups", "profiles"),
    *OF_PUBLISHING,
)


def read(
    path: str | os.PathLike[str],
    *,
    environ: Mapping[str, str] | None = None,
    only: Collection[str] | None = None,
) -> Config:
    """Read a config file; raise ConfigError with all its problems.

    Variables and secrets are resolved for the enabled servers, or for those named in `only`.
    """
    document = open_document(os.fspath(path))
    return _Reading(document, os.environ if environ is None else environ, only).config()


class _Reading:
    """Turns one file's data into a config."""

    def __init__(
        self, document: Document, environ: Mapping[str, str], only: Collection[str] | None
    ) -> None:
        self._document = document
        self._data = document.data
        self._path = os.path.abspath(document.path)
        self._sources = Sources(environ, os.path.dirname(self._path))
        self._only = only
        self._report = Report()
        self._auth: dict[str, Any] = {}
        """The defaults of logins."""

    def config(self) -> Config:
        found = sections(self._document)
        self._check_top(found)
        if is_own(self._document) and "auth" in self._data:
            self._auth = default_settings(self._report, self._data["auth"])
        servers: dict[str, ServerEntry] = {}
        for section in found:
            self._read_section(section, servers)
        components = self._components(servers)
        entries: Entries = {**servers, **components}
        gateway = self._gateway(entries)
        config = Config(
            path=self._path,
            gateway=gateway,
            search=self._search(),
            tasks=TaskSettings(**self._own("tasks", TaskSettings)),
            servers=servers,
            components=components,
            groups=self._groups(entries, gateway.links),
            profiles=self._profiles(entries),
            clients=self._clients(),
            publishing=self._publishing(),
            agents=self._agents(),
            warnings=(*group_warning(self._document.path), *self._located(self._report.warnings)),
            variables=frozenset(self._sources.looked_up),
            unresolved=self._located(self._report.unresolved),
        )
        if self._report.problems:
            wrong = [*self._report.problems, *self._report.unresolved]
            raise ConfigError(*self._located(wrong))
        return config

    def _check_top(self, found: list[Section]) -> None:
        """Report unknown and repeated top-level keys."""
        report = self._report
        mine = {section.path[0] for section in found} | {*_OWN_TABLES}
        again = {path for path, _ in self._document.duplicates}
        for path, line in self._document.duplicates:
            if path[0] in mine and not any(path[:n] in again for n in range(1, len(path))):
                what, remedy = "is set twice", "rename or remove one of them"
                report.problems.append(ConfigProblem(path, what, remedy, line))
        if self._document.kind == "json":
            if self._data.get("inputs") and any(s.path == ("servers",) for s in found):
                why = "${input:...} cannot be prompted for here"
                report.warn(("inputs",), why, "`portico import FILE` prompts for each once")
            if not found and self._data:
                self._check_misspelt()
            elif found:
                self._check_unknown(mine)
        elif not is_codex(self._document):  # whose other keys are that client's settings
            for key in self._data:
                if key not in TOP:
                    report_unknown(report, (), key, TOP)

    def _check_unknown(self, mine: Collection[str | int]) -> None:
        """Warn of unknown keys, unless they are the other settings of a client."""
        from portico.core.config.client_table import format_of

        row = format_of(self._path)
        if row is not None and row.has_settings:
            return
        for key in self._data:
            if key in OF_AGGREGATOR:
                self._report.warn((key,), "not used here", "`portico import FILE` converts it")
            elif key not in mine and key not in _BESIDE and not key.startswith(("_", "//")):
                self._report.warn((key,), "unknown key, ignored")

    def _check_misspelt(self) -> None:
        for key in self._data:
            if key.lower().replace("_", "") in ("mcpserver", "mcpservers", "server"):
                self._report.wrong((key,), "unknown key", "did you mean mcpServers?")
                return
        self._report.warn((), "has no mcpServers, so there are no servers")

    def _read_section(self, section: Section, servers: dict[str, ServerEntry]) -> None:
        if not isinstance(section.table, dict):
            read_table(self._report, section.path, section.table, {})
            return
        entries = entries_in(self._document, section)
        for name, key in names_in(section, servers).items():
            at = (*section.path, key)
            if not key.strip():
                self._report.wrong(at, "the server has no name", "add one")
                continue
            if not section.of_client and not is_valid_name(key):
                self._report.wrong(at, "is not a valid server name", f"write {valid_name(key)}")
                continue
            wanted = self._wanted(name, key)
            servers[name] = read_server(
                self._report,
                at,
                name,
                entries[key],
                self._sources,
                wanted,
                of_client=section.of_client,
                auth=self._auth,
            )

    def _wanted(self, *names: str) -> bool | None:
        return None if self._only is None else any(name in self._only for name in names)

    def _components(self, servers: Mapping[str, ServerEntry]) -> dict[str, ComponentEntry]:
        if not is_own(self._document) or "components" not in self._data:
            return {}
        from portico.core.config.component_entry import read_component

        table, report = self._data["components"], self._report
        if not isinstance(table, dict):
            read_table(report, ("components",), table, {})
            return {}
        found: dict[str, ComponentEntry] = {}
        for name, entry in table.items():
            at: Path = ("components", name)
            if not is_valid_name(name):
                report.wrong(at, "is not a valid component name", f"write {valid_name(name)}")
            elif name in servers:
                self._clash(at)
            else:
                sources, wanted = self._sources, self._wanted(name)
                one = read_component(report, at, name, entry, sources, wanted)
                found[name] = replace(one, config=self._path) if one.oci else one
        return found

    def _clash(self, at: Path) -> None:
        """Report a component with the name of a server, at both places."""
        of_server = next(
            (*section.path, key)
            for section in sections(self._document)
            for name, key in names_in(section, ()).items()
            if at[-1] in (name, key)
        )
        for place, other in ((of_server, at), (at, of_server)):
            what = f"has the same name as {dotted(other)}"
            self._report.wrong(place, what, "rename one of them")

    def _own(self, key: str, kind: type[Struct]) -> dict[str, Any]:
        if key not in self._data:
            return {}
        return read_table(self._report, (key,), self._data[key], readers(kind))

    def _gateway(self, servers: Entries) -> Gateway:
        found = self._own("gateway", Gateway)
        for number, name in enumerate(found.get("pinned", ())):
            at: Path = ("gateway", "pinned", number)
            server, middle, tool = name.partition("__")
            if not (server and middle and tool):
                self._report.wrong(
                    at, f"{quoted(name)} is not the name of a tool", "write server__tool"
                )
            elif server not in servers:
                what = f"there is no server {quoted(server)}"
                self._report.warn(at, what, self._report.suggest(server, servers))
        if "links" in found:
            from portico.core.config.gateway_links import read_links

            own = self._data if is_own(self._document) else {"gateway": self._data["gateway"]}
            found["links"] = read_links(self._report, own, found["links"], servers, self._sources)
        if found.get("log", "off") != "off":
            found["log"] = self._sources.path(found["log"])
        return Gateway(**found)

    def _search(self) -> Search:
        found = self._own("search", Search)
        if "model" in found:
            found["model"] = self._sources.path(found["model"])
        if "rerank" in found:
            found["rerank"] = self._rerank(found["rerank"])
        return Search(**found)

    def _rerank(self, found: dict[str, Any]) -> Rerank | None:
        at = ("search", "rerank")
        missing = [key for key in ("provider", "model") if key not in found]
        for key in missing:
            if key not in self._data["search"]["rerank"]:
                self._report.wrong((*at, key), "is missing", f"add {key}")
        if "url" in found:
            check_url(self._report, (*at, "url"), found["url"])
        if missing:
            return None
        found.setdefault("key_env", KEYS_OF[found["provider"]])
        return Rerank(**found)

    def _groups(self, servers: Entries, links: Collection[str]) -> dict[str, Group]:
        groups: dict[str, Group] = {}
        table = self._data.get("groups", {})
        if not isinstance(table, dict):
            read_table(self._report, ("groups",), table, {})
            return groups
        by_title = {server.title: name for name, server in servers.items() if server.title}
        for name, entry in table.items():
            at: Path = ("groups", name)
            if not is_valid_name(name):
                self._report.wrong(at, "is not a valid group name", f"write {valid_name(name)}")
            found = read_table(self._report, at, entry, readers(Group)).get("servers", ())
            members = [one if one in servers else by_title.get(one, one) for one in found]
            for number, one in enumerate(members):
                where = (*at, "servers", number)
                if one not in servers:
                    what = f"there is no server {quoted(one)}"
                    self._report.wrong(where, what, self._report.suggest(one, servers))
                elif one in links:
                    what = f"{one} is in gateway.links, so it is not a member"
                    self._report.wrong(where, what, "remove it here or there")
            groups[name] = Group(servers=tuple(dict.fromkeys(members)))
        return groups

    def _clients(self) -> dict[str, ClientSettings]:
        table = self._data.get("clients", {}) if is_own(self._document) else {}
        if not isinstance(table, dict):
            read_table(self._report, ("clients",), table, {})
            return {}
        found = {}
        for name, entry in table.items():
            at: Path = ("clients", name)
            if not is_valid_name(name):
                self._report.wrong(at, "is not a valid client name", f"write {valid_name(name)}")
            settings = read_table(self._report, at, entry, readers(ClientSettings))
            found[name] = ClientSettings(**settings)
        return found

    def _agents(self) -> "AgentsConfig | None":
        if not is_own(self._document) or not any(key in self._data for key in OF_AGENTS):
            return None
        from portico.core.config.agents_tables import read_agents

        return read_agents(self._report, self._data, self._sources, self._wanted)

    def _publishing(self) -> Publishing:
        if not is_own(self._document) or not any(key in self._data for key in OF_PUBLISHING):
            return Publishing()
        return read_publishing(self._report, self._data, self._sources)

    def _profiles(self, entries: Entries) -> "dict[str, Profile]":
        if not is_own(self._document) or "profiles" not in self._data:
            return {}
        from portico.core.config.profiles import read_profiles

        return read_profiles(self._report, self._data["profiles"], entries, self._sources)

    def _located(self, problems: list[ConfigProblem]) -> tuple[str, ...]:
        """Format each problem with its file and line."""
        if not problems:
            return ()
        from portico.core.documents.places import LineIndex

        lines, file = LineIndex(self._document.text, self._document.kind), self._document.path
        placed = [(one.line or lines.line(one.at), one) for one in problems]
        placed.sort(key=lambda pair: pair[0])
        lines_shown = [f"{file}:{line}: {one}" for line, one in placed[:MAX_LISTED]]
        if len(placed) > MAX_LISTED:
            lines_shown.append(f"{file}: and {len(placed) - MAX_LISTED} more")
        return tuple(lines_shown)
