"""Checks of what runs: orphans, gateways, and servers that clients start themselves."""

import os
from collections.abc import Callable, Iterator

from portico.config.paths import working_folder
from portico.config.problems import ConfigError
from portico.config.read import read
from portico.config.schema import Config, ServerEntry
from portico.console.running import RunningPortico
from portico.doctor.faults import Finding, finding
from portico.process.children_file import ChildRecord, end_orphans, orphans
from portico.process.process_tree import read_proc

_USER_FILES = (
    *("~/.claude.json", "~/.config/Claude/claude_desktop_config.json", "~/.cursor/mcp.json"),
    *("~/.config/Code/User/mcp.json", "~/.codeium/windsurf/mcp_config.json"),
    *("~/.codex/config.toml", "~/.gemini/settings.json", "~/.qwen/settings.json"),
    *("~/.config/opencode/opencode.json", "~/.copilot/mcp-config.json"),
    "~/.config/zed/settings.json",
)
_PROJECT_FILES = (".mcp.json", ".cursor/mcp.json", ".vscode/mcp.json", ".gemini/settings.json")
_OWN = ("portico", "portico.exe")


def check_orphans() -> Iterator[Finding]:
    """Find the children of killed Porticos."""
    for one in orphans():
        yield finding("orphan", f"process {one.pid} ({_command(one)}) has no Portico", _end(one))


def _end(orphan: ChildRecord) -> Callable[[], None]:
    return lambda: end_orphans([orphan])


def _command(orphan: ChildRecord) -> str:
    try:
        words = read_proc(f"/proc/{orphan.pid}/cmdline").decode(errors="replace").split("\0")
    except OSError:
        return "?"
    return os.path.basename(words[0]) or "?"  # its arguments may contain secrets


def check_gateways(porticos: list[RunningPortico], version: str) -> Iterator[Finding]:
    """Find gateways of one config, and those of another version."""
    by_config: dict[str, list[str]] = {}
    for portico in porticos:
        gateway = portico.status.get("gateway")
        if not portico.is_running or not isinstance(gateway, dict):
            continue
        config, pid = str(portico.status.get("config")), str(portico.status.get("pid"))
        by_config.setdefault(os.path.realpath(config), []).append(pid)
        runs = str(gateway.get("version"))
        if runs != version:
            what = f"process {pid} runs Portico {runs}; {version} is installed"
            yield finding("old-gateway", what, config=config)
    for config, pids in by_config.items():
        if len(pids) > 1:
            what = f"processes {' and '.join(pids)} serve {config}"
            yield finding("two-gateways", what, config=config)


def check_clients(config: Config) -> Iterator[Finding]:
    """Find servers of the config in the files of clients, which start them once more."""
    ours = {_identity(one): name for name, one in config.servers.items() if one.enabled}
    for file in _client_files():
        if os.path.realpath(file) == os.path.realpath(config.path):
            continue
        try:
            theirs = read(file, only=()).servers
        except ConfigError as error:
            yield finding("client-file", error.problems[0], file=file)
            continue
        for name, entry in theirs.items():
            same = ours.get(_identity(entry))
            if entry.enabled and same is not None and not _is_portico(entry):
                what = f"{file} has {name}, which is {same} of the config"
                yield finding("client", what, server=name, file=file)


def _client_files() -> list[str]:
    here = working_folder()
    project = [os.path.join(here, file) for file in _PROJECT_FILES] if here else []
    files = [*map(os.path.expanduser, _USER_FILES), *project]
    return [file for file in dict.fromkeys(files) if os.path.isfile(file)]


def _identity(entry: ServerEntry) -> tuple[str, ...]:
    """A server as two entries have it in common: its URL, or its command line."""
    return (entry.url,) if entry.url else (os.path.basename(entry.command), *entry.args)


def _is_portico(entry: ServerEntry) -> bool:
    return os.path.basename(entry.command) in _OWN
