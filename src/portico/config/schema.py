"""What a config file says, checked: one frozen struct a table."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

NAME_LIMIT = 40
"""A server's name is part of each of its tools' names, for which clients leave 64 characters."""


class ToolFilter(Struct, frozen=True, kw_only=True):
    """Which tools of a server are offered, by shell patterns."""

    allow: tuple[str, ...] = ()
    """None given allows all."""
    deny: tuple[str, ...] = ()

    def allows(self, name: str) -> bool:
        """Whether this tool is offered; what is denied never is."""
        if not (self.allow or self.deny):
            return True
        from fnmatch import fnmatchcase

        if any(fnmatchcase(name, pattern) for pattern in self.deny):
            return False
        return not self.allow or any(fnmatchcase(name, pattern) for pattern in self.allow)


class Timeouts(Struct, frozen=True, kw_only=True):
    """How long things may take, in seconds."""

    init: float = 30.0
    list: float = 30.0
    call: float = 120.0
    idle: float = 300.0
    """Stopped when it had nothing to do for so long; 0 never stops it."""


class Server(Struct, frozen=True, kw_only=True):
    """One upstream: a command to start, or a URL."""

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    type: str = ""
    """`stdio`, `http` or `sse`; empty to find out."""
    enabled: bool = True
    title: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    tools: ToolFilter = ToolFilter()
    timeouts: Timeouts = Timeouts()
    instances: int = 1
    sharing: str = "auto"
    may_ask: bool = True
    """Whether its questions (elicitation, sampling, roots) reach clients."""
    era: str = "auto"
    max_in_flight: int = 256
    max_connections: int = 128
    """To a URL, with a request under way."""
    max_tools: int | None = None
    """Entries of each of its lists; None for what the gateway allows."""
    auth: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""
    """Why it cannot be started: a value that cannot be had. Empty if it can."""

    def __repr__(self) -> str:
        # Arguments, variables, headers and URLs hold secrets.
        return f"Server({self.name!r}, {'a URL' if self.url else 'a command'})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("name", self.name)]


class Gateway(Struct, frozen=True, kw_only=True):
    """The one endpoint in front of all servers."""

    expose: str = "auto"
    pinned: tuple[str, ...] = ()
    """Tools that are always listed, as `server__tool`."""
    name_limit: int = 64
    max_tools: int = 10_000
    """Entries of each list of a server; the rest is reported and left out."""
    http: str = ""
    """`[HOST:]PORT`; empty for stdio."""
    auth: str = "token"
    log: str | None = None
    """A file for one line a call, or `off`."""
    cache_mb: int = 256
    """What stored catalogs and indexes may take together."""
    drain: float = 30.0
    drain_notice_s: float = 8.0
    """How long to serve on as not ready before a drain, if something probes `/readyz`."""
    watchdog_ms: int = 250
    """Report whose message kept all clients waiting for so long; 0 never does."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """Those of the HTTP edge that are set, by their names there."""


class Rerank(Struct, frozen=True, kw_only=True):
    """A model elsewhere that puts the first hits in order."""

    provider: str
    model: str
    url: str = ""
    key_env: str
    """The variable that has the key."""
    timeout_ms: int = 800


class Search(Struct, frozen=True, kw_only=True):
    """How tools are found."""

    default_limit: int = 5
    vectors: bool = False
    model: str = ""
    """The folder of the model that makes vectors."""
    rerank: Rerank | None = None


class Group(Struct, frozen=True, kw_only=True):
    """Some of the servers, served together."""

    servers: tuple[str, ...] = ()


class Config(Struct, frozen=True, kw_only=True):
    """All that one file says."""

    path: str
    gateway: Gateway = Gateway()
    search: Search = Search()
    servers: Mapping[str, Server] = field(default_factory=dict)
    """By name, in the file's order."""
    groups: Mapping[str, Group] = field(default_factory=dict)
    later: Mapping[str, Any] = field(default_factory=dict)
    """Tables that are known but not used yet, as they are."""
    warnings: tuple[str, ...] = ()
    variables: frozenset[str] = frozenset()
    """The names of those that were looked up in the environment."""
    unresolved: tuple[str, ...] = ()
    """The values that cannot be had: only the servers that need them are not started."""

    @property
    def disabled(self) -> list[str]:
        """The servers that are switched off."""
        return [name for name, server in self.servers.items() if not server.enabled]

    def __repr__(self) -> str:
        return f"Config({self.path!r}, servers={list(self.servers)!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("path", self.path), ("servers", list(self.servers))]
