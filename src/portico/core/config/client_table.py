"""The table of clients: where each keeps its servers, and how it writes one of them."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from portico.core.documents.problems import Path

_SYSTEMS = {"Darwin": "macos", "Windows": "windows"}


class System(Struct, frozen=True):
    """The machine whose paths are meant."""

    name: str
    """`linux`, `macos` or `windows`."""
    home: str
    environ: Mapping[str, str] = {}

    def place(self, path: str) -> str:
        """Resolve `~/...`, `CONFIG/...` (the folder of applications' settings) or `$NAME/...`."""
        first, _, rest = path.partition("/")
        return os.path.join(self._root(first), *rest.split("/"))

    def _root(self, first: str) -> str:
        if first.startswith("$"):
            return self.environ[first[1:]]
        if first == "~":
            return self.home
        if self.name == "macos":
            return os.path.join(self.home, "Library", "Application Support")
        if self.name == "windows":
            return self.environ.get("APPDATA") or os.path.join(self.home, "AppData", "Roaming")
        return self.environ.get("XDG_CONFIG_HOME") or os.path.join(self.home, ".config")


def this_system() -> System:
    """The machine that Portico runs on."""
    import platform

    name = _SYSTEMS.get(platform.system(), "linux")
    return System(name, os.path.expanduser("~"), os.environ)


Write = Callable[[Sequence[str]], dict[str, Any]]
"""Makes a client's entry for a server with this command line."""


def _plain(argv: Sequence[str]) -> dict[str, Any]:
    return {"command": argv[0], "args": [*argv[1:]]}


def _stdio(argv: Sequence[str]) -> dict[str, Any]:
    return {"type": "stdio", **_plain(argv)}


def _copilot(argv: Sequence[str]) -> dict[str, Any]:
    return {"type": "local", **_plain(argv), "tools": ["*"]}


def _opencode(argv: Sequence[str]) -> dict[str, Any]:
    return {"type": "local", "command": [*argv], "enabled": True}


class ClientFormat(Struct, frozen=True, kw_only=True):
    """One client's files, and the form of its entries."""

    name: str
    title: str
    files: tuple[str, ...]
    """The user's file; further ones are names that the client reads too."""
    macos: str = ""
    windows: str = ""
    """The file there, if it is another one."""
    moved: str = ""
    """The file if the variable that it begins with is set."""
    older: tuple[str, ...] = ()
    """Files that are read, and never written."""
    project: tuple[str, ...] = ()
    """The files in a project's folder."""
    section: Path = ("mcpServers",)
    write: Write | None = _plain
    """None for a predecessor of Portico, which is not a client."""
    is_app: bool = False
    """It is started by the desktop, so that it does not have the PATH of a shell."""
    has_settings: bool = False
    """Its file also contains other settings."""
    dollar_names: bool = False
    """It expands `$NAME`."""

    def file(self, system: System) -> str:
        """The user's file: the first that exists, or else the one to create."""
        candidates = self._candidates(system)
        return next((path for path in candidates if os.path.exists(path)), candidates[0])

    def sources(self, system: System) -> list[str]:
        """The files of the user that exist, newest form first."""
        older = (system.place(path) for path in self.older)
        return [path for path in (self.file(system), *older) if os.path.exists(path)]

    def is_there(self, system: System) -> bool:
        """True if the client has been used here: it has a file or a folder for its settings."""
        if os.path.exists(self.file(system)):
            return True
        folder = os.path.dirname(self._candidates(system)[0])
        return folder != system.home and os.path.isdir(folder)

    def project_files(self, folder: str) -> list[str]:
        """The files of this project that exist."""
        paths = (os.path.join(folder, *path.split("/")) for path in self.project)
        return [path for path in paths if os.path.exists(path)]

    def owns(self, path: str) -> bool:
        """True if a path ends as one of this client's files does."""
        given = path.replace(os.sep, "/")
        tails = (one.partition("/")[2] for one in (*self.files, *self.older, self.windows))
        ends = [f"/{tail}" for tail in (*tails, *self.project) if tail]
        return any(f"/{given}".endswith(end) for end in ends)

    def _candidates(self, system: System) -> list[str]:
        if self.moved and system.environ.get(self.moved.partition("/")[0][1:]):
            return [system.place(self.moved)]
        own = {"macos": self.macos, "windows": self.windows}.get(system.name)
        return [system.place(path) for path in ((own,) if own else self.files)]


_ROWS = (
    ClientFormat(
        name="claude",
        title="Claude Code",
        files=("~/.claude.json",),
        moved="$CLAUDE_CONFIG_DIR/.claude.json",
        project=(".mcp.json",),
        write=_stdio,
        has_settings=True,
    ),
    ClientFormat(
        name="claude-desktop",
        title="Claude Desktop",
        files=("CONFIG/Claude/claude_desktop_config.json",),
        is_app=True,
        has_settings=True,
    ),
    ClientFormat(
        name="cursor",
        title="Cursor",
        files=("~/.cursor/mcp.json",),
        project=(".cursor/mcp.json",),
        is_app=True,
    ),
    ClientFormat(
        name="vscode",
        title="VS Code",
        files=("CONFIG/Code/User/mcp.json",),
        older=("CONFIG/Code/User/settings.json",),
        project=(".vscode/mcp.json",),
        section=("servers",),
        write=_stdio,
        is_app=True,
        has_settings=True,
    ),
    ClientFormat(
        name="windsurf",
        title="Windsurf",
        files=("~/.codeium/windsurf/mcp_config.json",),
        is_app=True,
    ),
    ClientFormat(
        name="codex",
        title="Codex",
        files=("~/.codex/config.toml",),
        moved="$CODEX_HOME/config.toml",
        project=(".codex/config.toml",),
        section=("mcp_servers",),
        has_settings=True,
    ),
    ClientFormat(
        name="gemini",
        title="Gemini CLI",
        files=("~/.gemini/settings.json",),
        project=(".gemini/settings.json",),
        has_settings=True,
        dollar_names=True,
    ),
    ClientFormat(
        name="qwen",
        title="Qwen Code",
        files=("~/.qwen/settings.json",),
        moved="$QWEN_HOME/settings.json",
        project=(".qwen/settings.json",),
        has_settings=True,
        dollar_names=True,
    ),
    ClientFormat(
        name="opencode",
        title="OpenCode",
        files=(
            "~/.config/opencode/opencode.json",
            "~/.config/opencode/opencode.jsonc",
            "~/.config/opencode/config.json",
        ),
        project=(
            "opencode.json",
            "opencode.jsonc",
            ".opencode/opencode.json",
            ".opencode/opencode.jsonc",
        ),
        section=("mcp",),
        write=_opencode,
        has_settings=True,
    ),
    ClientFormat(
        name="copilot",
        title="Copilot CLI",
        files=("~/.copilot/mcp-config.json",),
        moved="$COPILOT_HOME/mcp-config.json",
        write=_copilot,
    ),
    ClientFormat(
        name="zed",
        title="Zed",
        files=("CONFIG/zed/settings.json",),
        macos="~/.config/zed/settings.json",
        windows="CONFIG/Zed/settings.json",
        project=(".zed/settings.json",),
        section=("context_servers",),
        is_app=True,
        has_settings=True,
    ),
)
CLIENTS: dict[str, ClientFormat] = {row.name: row for row in _ROWS}
"""The clients that Portico can be installed in, by name."""

_PREDECESSORS = (
    ClientFormat(
        name="mcpzip",
        title="mcpzip",
        files=("CONFIG/compressed-mcp-proxy/config.json",),
        macos="~/.config/compressed-mcp-proxy/config.json",
        write=None,
    ),
    ClientFormat(
        name="orchestrator",
        title="the multi-agent orchestrator",
        files=("CONFIG/gemini-mcp-proxy/config.toml",),
        macos="~/.config/gemini-mcp-proxy/config.toml",
        write=None,
    ),
)
SOURCES: dict[str, ClientFormat] = {**CLIENTS, **{row.name: row for row in _PREDECESSORS}}
"""Everything that servers can be imported from, by name."""


def format_of(path: str) -> ClientFormat | None:
    """The row of the client whose file this is, by its path; None if it is unknown."""
    return next((row for row in SOURCES.values() if row.owns(path)), None)
