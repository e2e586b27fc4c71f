"""The config as data: one frozen struct per table, with the reader of each key."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Struct, field
from msgspec.structs import replace

from portico.core.config.auth_settings import AuthSettings, auth_table
from portico.core.config.component_grants import ComponentGrants
from portico.core.config.publishing import Publishing
from portico.core.config.values import (
    RESTART,
    Reader,
    address,
    choice,
    flag,
    grants_table,
    integer,
    non_empty,
    number,
    pairs,
    readers,
    restart_keys,
    table,
    text,
    texts,
)
from portico.core.model.defaults import (
    CACHE_MB,
    CALL_S,
    DRAIN_S,
    IDLE_S,
    INIT_S,
    LEASE_S,
    LIST_S,
    MAX_CONNECTIONS,
    MAX_IN_FLIGHT,
    MAX_KEPT_TASKS,
    NOTICE_S,
    TASKS_IN_PROGRESS,
)

if TYPE_CHECKING:
    from portico.core.config.agents_schema import AgentsConfig, Retention

# The names are those of `HttpLimits` in `edge/transport/http_limits.py`, which a test compares.
_LIMITS = """
    body_bytes body_s bodies_bytes unread_bytes connections half_open header_bytes header_count
    header_s keep_alive_s stall_s quiet_s running streams sessions session_idle_s session_streams
    notices replay_events replay_bytes session_replay_bytes all_replay_bytes retry_ms
"""
_MAY_BE_0 = {name for name in _LIMITS.split() if "replay" in name} | {"retry_ms"}
LIMITS: dict[str, Reader] = {
    name: number() if name.endswith("_s") else integer(0 if name in _MAY_BE_0 else 1)
    for name in _LIMITS.split()
}

KEYS_OF = {"openai": "OPENAI_API_KEY", "gemini": "GEMINI_API_KEY"}
"""The providers of rerankers, and the variable with each one's API key."""

OF_PUBLISHING = ("registries", "trust")
OF_AGENTS = ("agents_defaults", "agents", "routing")
TOP = (
    "gateway",
    "search",
    "tasks",
    "auth",
    "servers",
    "components",
    "groups",
    "clients",
    "mcp_servers",
    "profiles",
    *OF_PUBLISHING,
    *OF_AGENTS,
)


class ToolFilter(Struct, frozen=True, kw_only=True):
    """Shell patterns that select the tools of a server."""

    allow: Annotated[tuple[str, ...], texts] = ()
    """Empty allows all."""
    deny: Annotated[tuple[str, ...], texts] = ()

    def allows(self, name: str) -> bool:
        """True if this tool is offered; deny wins over allow."""
        if not (self.allow or self.deny):
            return True
        from fnmatch import fnmatchcase

        if any(fnmatchcase(name, pattern) for pattern in self.deny):
            return False
        return not self.allow or any(fnmatchcase(name, pattern) for pattern in self.allow)


class Timeouts(Struct, frozen=True, kw_only=True):
    """The timeouts of a server, in seconds."""

    init: Annotated[float, number()] = INIT_S
    install: Annotated[float | None, number(or_none=True)] = None
    """How long a command may take that installs its server; None for 600 with a known installer."""
    list: Annotated[float, number()] = LIST_S
    call: Annotated[float, number()] = CALL_S
    idle: Annotated[float, number(or_none=True)] = IDLE_S
    """The server is stopped after being idle for this long; 0 never stops it."""


class _MemberEntry(Struct, frozen=True, kw_only=True):
    """The keys that servers and components share."""

    name: str
    command: Annotated[str, non_empty] = ""
    args: Annotated[tuple[str, ...], texts] = ()
    env: Annotated[Mapping[str, str], pairs] = field(default_factory=dict)
    cwd: Annotated[str | None, non_empty] = None
    folder: Annotated[str, choice("auto", "any")] = "auto"
    """`any` if the folder that it runs in does not matter, so that all windows can share it."""
    enabled: Annotated[bool, flag] = True
    title: Annotated[str, text] = ""
    description: Annotated[str, text] = ""
    tags: Annotated[tuple[str, ...], texts] = ()
    tools: Annotated[ToolFilter, table(readers(ToolFilter))] = ToolFilter()
    timeouts: Annotated[Timeouts, table(readers(Timeouts))] = Timeouts()
    instances: Annotated[int, integer(1, 1000)] = 1
    sharing: Annotated[str, choice("auto", "shared", "per-client")] = "auto"
    may_ask: Annotated[bool, flag] = True
    """Whether its questions (elicitation, sampling, roots) reach clients."""
    trust_hints: Annotated[bool, flag] = True
    """Whether its word that a tool is read-only counts."""
    max_in_flight: Annotated[int, integer(1)] = MAX_IN_FLIGHT
    max_tools: Annotated[int | None, integer(1, 100_000)] = None
    """The limit of entries in each of its lists; None for the gateway's limit."""
    sync_budget_s: Annotated[float | None, number()] = None
    """A call that takes longer becomes a task; None for the gateway's value."""
    problem: str = ""
    """Why it cannot be started: its file, or a reference that cannot be resolved. Empty if it can.
    """

    @property
    def is_per_folder(self) -> bool:
        """True if it runs in the folder of the window that uses it: once for each folder."""
        return self.folder == "auto" and not os.path.isabs(self.cwd or "")

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        # Arguments, variables, headers and URLs hold secrets.
        return [("name", self.name)]


class ServerEntry(_MemberEntry, frozen=True, kw_only=True):
    """One upstream: a command to start, or a URL."""

    url: Annotated[str, non_empty] = ""
    headers: Annotated[Mapping[str, str], pairs] = field(default_factory=dict)
    type: Annotated[str, choice("stdio", "http", "sse")] = ""
    """`stdio`, `http` or `sse`; empty to detect it."""
    era: Annotated[str, choice("auto", "modern", "legacy")] = "auto"
    max_connections: Annotated[int, integer(1)] = MAX_CONNECTIONS
    """Connections to a URL with a request in progress."""
    auth: Annotated[AuthSettings, auth_table] = AuthSettings()
    is_sandboxed: bool = False
    """True for a worker of Portico's own, whose environment is only what is set for it."""

    @property
    def is_per_folder(self) -> bool:
        """True if it runs in the folder of the window that uses it; a URL runs nowhere here."""
        return not self.url and super().is_per_folder

    def placed_in(self, folder: str) -> "ServerEntry":
        """Return the entry for a process in this folder; an empty one is our own."""
        if not folder or not self.is_per_folder:
            return self
        return replace(self, cwd=os.path.normpath(os.path.join(folder, self.cwd or "")))

    def __repr__(self) -> str:
        return f"Server({self.name!r}, {'a URL' if self.url else 'a command'})"


class ComponentEntry(_MemberEntry, frozen=True, kw_only=True):
    """One component: a file that Portico loads, or a command."""

    path: Annotated[str, non_empty] = ""
    """`file.py`, `file.py:NAME` or `tools.json`; absolute once it is read."""
    oci: Annotated[str, non_empty] = ""
    """A reference to a registry, in place of a path."""
    handlers: Annotated[str, non_empty] = ""
    """The Python file with the functions of a definitions file."""
    python: Annotated[str, non_empty] = ""
    """The Python that runs the file, such as that of a virtual environment; absolute once read."""
    in_process: Annotated[bool, flag] = False
    """Load the file in the gateway's own process."""
    config: str = ""
    """The config file that has it, if it is a reference."""
    sidecar: str = ""
    """The file beside the config that describes the functions of a reference, if there is one."""
    instance: Annotated[str, choice("call", "session", "shared")] = "call"
    """How long an instance of a WebAssembly component lives."""
    grants: Annotated[ComponentGrants, grants_table] = ComponentGrants()
    """All that a WebAssembly component may use; nothing by default."""

    @property
    def files(self) -> tuple[str, ...]:
        """The files that it is loaded from, some of which may not exist."""
        path = file_of(self.path)
        described_in = self.sidecar or (f"{path}.toml" if path.endswith(".wasm") else "")
        return tuple(file for file in (path, self.handlers, described_in) if file)

    def as_server(self, **changes: Any) -> ServerEntry:
        """Return a server with the keys that it has in common with this component, and changes."""
        shared = {key: getattr(self, key) for key in _MemberEntry.__struct_fields__}
        return ServerEntry(**{**shared, **changes})

    def __repr__(self) -> str:
        return f"Component({self.name!r}, {self.path or self.oci or 'a command'!r})"


class Gateway(Struct, frozen=True, kw_only=True):
    """The one endpoint in front of all servers."""

    expose: Annotated[str, choice("auto", "search", "all"), RESTART] = "auto"
    pinned: Annotated[tuple[str, ...], texts] = ()
    """Tools that are always listed, named `server__tool`."""
    links: Annotated[tuple[str, ...], texts] = ()
    """The links before every endpoint: `file.py`, `file.py:NAME`, or the name of a component."""
    name_limit: Annotated[int, integer(32, 1024)] = 64
    max_tools: Annotated[int, integer(1, 100_000)] = 10_000
    """The limit of entries in each list of a server; further ones are reported and left out."""
    http: Annotated[str, address, RESTART] = ""
    """`[HOST:]PORT`; empty for stdio."""
    auth: Annotated[str, choice("token", "none"), RESTART] = "token"
    log: Annotated[str | None, non_empty, RESTART] = None
    """The log's path, or `off`."""
    cache_mb: Annotated[int, integer(1, 1_000_000), RESTART] = CACHE_MB
    """The size limit of stored catalogs and indexes together."""
    sync_budget_s: Annotated[float | None, number()] = None
    """A call of a server's tool that takes longer becomes a task; None for never."""
    drain: Annotated[float, number(or_none=True)] = DRAIN_S
    drain_notice_s: Annotated[float, number(or_none=True), RESTART] = NOTICE_S
    """How long to keep serving as not ready before a drain, if `/readyz` is probed."""
    watchdog_ms: Annotated[int, integer(0, 3_600_000), RESTART] = 250
    """Report messages that block all clients for longer than this; 0 disables it."""
    limits: Annotated[Mapping[str, float], table(LIMITS), RESTART] = field(default_factory=dict)
    """The limits of the HTTP transport that are set, by their names there."""


class TaskSettings(Struct, frozen=True, kw_only=True):
    """The limits of tasks."""

    running: Annotated[int, integer(1, 1000), RESTART] = 16
    """Tasks that one gateway runs at the same time; others wait."""
    in_progress: Annotated[int, integer(1, 100_000), RESTART] = TASKS_IN_PROGRESS
    """Tasks of one client that are not finished; more are refused."""
    keep_days: Annotated[float | None, number(), RESTART] = None
    """How long finished tasks are kept; None for `keep_tasks` of the agents, or its default."""
    keep_count: Annotated[int | None, integer(1, MAX_KEPT_TASKS), RESTART] = None
    """Finished tasks of one client, older ones are removed; None as for `keep_days`."""
    lease_s: Annotated[float, number(), RESTART] = LEASE_S
    """How long a task of a process that was killed waits for another one."""


class Rerank(Struct, frozen=True, kw_only=True):
    """A remote model that sorts the first results."""

    provider: Annotated[str, choice(*KEYS_OF)]
    model: Annotated[str, non_empty]
    url: Annotated[str, non_empty] = ""
    key_env: Annotated[str, non_empty]
    """The variable with the API key."""
    timeout_ms: Annotated[int, integer(1)] = 800


class Search(Struct, frozen=True, kw_only=True):
    """The settings of search."""

    default_limit: Annotated[int, integer(1, 50)] = 5
    vectors: Annotated[bool, flag, RESTART] = False
    model: Annotated[str, non_empty, RESTART] = ""
    """The folder of the embedding model."""
    rerank: Annotated[Rerank | None, table(readers(Rerank)), RESTART] = None


class Group(Struct, frozen=True, kw_only=True):
    """A subset of the servers and components, served together."""

    servers: Annotated[tuple[str, ...], texts] = ()


class Profile(Struct, frozen=True, kw_only=True):
    """Components that `portico run` and `portico compose` take under one name."""

    components: Annotated[tuple[str, ...], texts] = ()
    """Aliases, files, URLs, commands and other profiles, in order."""
    base: Annotated[str, non_empty] = ""
    """A profile whose components come first."""

    @property
    def members(self) -> tuple[str, ...]:
        """The base, if there is one, and the components."""
        return (self.base, *self.components) if self.base else self.components


class ClientSettings(Struct, frozen=True, kw_only=True):
    """How the windows of one client are served, by the name in `serve --client`."""

    expose: Annotated[str | None, choice("auto", "search", "all")] = None
    """None for the gateway's value."""


class Config(Struct, frozen=True, kw_only=True):
    """The contents of one config file."""

    path: str
    gateway: Gateway = Gateway()
    search: Search = Search()
    tasks: TaskSettings = TaskSettings()
    servers: Mapping[str, ServerEntry] = field(default_factory=dict)
    """The servers by name, in the order of the file."""
    components: Mapping[str, ComponentEntry] = field(default_factory=dict)
    """The components by name, in the order of the file."""
    groups: Mapping[str, Group] = field(default_factory=dict)
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    clients: Mapping[str, ClientSettings] = field(default_factory=dict)
    publishing: Publishing = Publishing()
    """Registries, and the keys that may sign."""
    agents: "AgentsConfig | None" = None
    """Agents and routing; None if no table is about them."""
    warnings: tuple[str, ...] = ()
    variables: frozenset[str] = frozenset()
    """The names of the environment variables that were looked up."""
    unresolved: tuple[str, ...] = ()
    """References that cannot be resolved: only the servers that need them are not started."""

    @property
    def aliases(self) -> "dict[str, ServerEntry | ComponentEntry]":
        """The servers, then the components, by name."""
        return {**self.servers, **self.components}

    @property
    def entries(self) -> "dict[str, ServerEntry | ComponentEntry]":
        """The members of the gateway by name: the aliases that are not links."""
        links = self.gateway.links
        return {name: entry for name, entry in self.aliases.items() if name not in links}

    @property
    def linked(self) -> Mapping[str, ComponentEntry]:
        """The components that are links, by name."""
        return {name: one for name, one in self.components.items() if name in self.gateway.links}

    @property
    def link_files(self) -> list[str]:
        """The files of the links."""
        linked = self.linked
        found = (linked[one].files if one in linked else (one,) for one in self.gateway.links)
        return [file_of(file) for files in found for file in files]

    @property
    def kept_tasks(self) -> "Retention":
        """How long finished tasks are kept."""
        from portico.core.config.agents_schema import Retention

        default = Retention() if self.agents is None else self.agents.defaults.keep_tasks
        days, count = self.tasks.keep_days, self.tasks.keep_count
        return Retention(
            days=default.days if days is None else days,
            count=default.count if count is None else count,
        )

    @property
    def has_budgets(self) -> bool:
        """True if calls of a server may become tasks after a time of its own."""
        return any(entry.sync_budget_s is not None for entry in self.entries.values())

    def budget_s(self, server: str) -> float | None:
        """Return the time after which a call of a server or component becomes a task; None for
        never."""
        entry = self.servers.get(server) or self.components.get(server)
        own = None if entry is None else entry.sync_budget_s
        return self.gateway.sync_budget_s if own is None else own

    @property
    def disabled(self) -> list[str]:
        """The names of the disabled servers and components."""
        return [name for name, entry in self.entries.items() if not entry.enabled]

    def waits_for_restart(self, before: "Config") -> list[str]:
        """Return the keys with other values than before that take effect only after a restart."""
        tables = (
            (name, getattr(self, name), getattr(before, name))
            for name in ("gateway", "search", "tasks")
        )
        return [
            f"{name}.{key}"
            for name, now, earlier in tables
            for key in restart_keys(type(now))
            if getattr(now, key) != getattr(earlier, key)
        ]

    def __repr__(self) -> str:
        return f"Config({self.path!r}, servers={list(self.servers)!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("path", self.path), ("servers", list(self.servers))]


SERVER = readers(ServerEntry)
COMPONENT = readers(ComponentEntry)


def file_of(path: str) -> str:
    """Return the file of `file.py` or `file.py:NAME`."""
    file, colon, variable = path.rpartition(":")
    has_variable = colon and variable.isidentifier() and not os.path.exists(path)
    return file if has_variable else path
