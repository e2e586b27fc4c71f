"""This user's running Porticos, and the config's gateway even while it is not running."""

import os
from typing import Any

from msgspec import Struct

from portico.core.config.paths import config_file, control_folder
from portico.core.documents.problems import ConfigError
from portico.edge.windows.control import send_command, socket_names

_STATUS_S = 5.0
_VOLATILE = ("retry_in_s", "age_s", "connections", "held", "lists")
"""Fields that change without an event, or too often to report."""


class RunningPortico(Struct):
    """A gateway or a `wrap`; or the config's gateway while it is not running."""

    is_running: bool
    status: dict[str, Any]

    @property
    def servers(self) -> list[dict[str, Any]]:
        """The status of each server, followed by the disabled ones."""
        status = self.status
        servers = status.get("servers")
        if isinstance(servers, list):
            off = [{"server": name, "state": "disabled"} for name in status.get("disabled", ())]
            return [*(one for one in servers if isinstance(one, dict)), *off]
        return [_wrapped_server(status)] if "server" in status else []

    @property
    def error(self) -> str:
        """Why its status is unavailable."""
        return str(self.status.get("error") or "")

    @property
    def rejected(self) -> str:
        """The problems because of which it keeps its previous config, one per line."""
        return str(self.status.get("rejected") or "")

    @property
    def title(self) -> str:
        """One line that identifies it."""
        if not self.is_running:
            return f"not running: {self.status.get('config')} (from cached lists)"
        process = f"process {self.status.get('pid')}"
        url = [str(self.status["url"])] if self.status.get("url") else []
        gateway = self.status.get("gateway")
        if not isinstance(gateway, dict):
            return ", ".join([f"wrap: {process}" if "server" in self.status else process, *url])
        from portico.commands.console.tables import duration
        from portico.core.model.wording import counted

        tasks = gateway.get("tasks_running")
        parts = [
            f"serve: {process}",
            str(self.status.get("config")),
            *url,
            counted(gateway.get("tools"), "tool"),
            *([self._windows] if self.status.get("windows") else []),
            *([f"{counted(tasks, 'task')} running"] if tasks else []),
            f"exposes {'search' if gateway.get('expose') == 'search' else 'all tools'}",
            f"up {duration(gateway.get('uptime_s'))}",
            f"version {gateway.get('version', '?')}",
        ]
        return ", ".join(parts)

    @property
    def processes(self) -> list[str]:
        """A line with the processes of an owner and of its windows; none without an owner."""
        pid, windows = self.status.get("pid"), self.status.get("window_pids")
        if not isinstance(windows, list) or not windows or pid in windows:
            return []
        from portico.core.model.wording import counted

        count = counted(len(windows), "window")
        return [f"  owner {pid}, {count}: {', '.join(map(str, windows))}"]

    @property
    def _windows(self) -> str:
        """The number of windows, and the names of their clients."""
        from portico.core.model.wording import counted

        clients = self.status.get("clients") or {}
        named = [f"{name} {count}" if count > 1 else name for name, count in clients.items()]
        count = counted(self.status["windows"], "window")
        return f"{count} ({', '.join(named)})" if named else count

    @property
    def to_json(self) -> dict[str, Any]:
        """The status as JSON data."""
        status = {key: value for key, value in self.status.items() if key != "ok"}
        return {"running": self.is_running, **status, "servers": self.servers}

    @property
    def significant_state(self) -> object:
        """The fields whose change `status --watch` reports."""
        kept = [{k: v for k, v in one.items() if k not in _VOLATILE} for one in self.servers]
        shown = self.status.get("exposures")
        return (self.is_running, self.status.get("pid"), self.error, self.rejected, kept, shown)


_OF_PROCESS = ("ok", "pid", "coroutines", "url")
"""Keys of a status that are not about its server."""


def in_folders(server: dict[str, Any]) -> list[dict[str, Any]]:
    """A server, and its processes in the folders of windows."""
    placed = server.get("folders")
    name = {"server": server.get("server"), "kind": server.get("kind")}
    return [server, *({**name, **one} for one in (placed if isinstance(placed, list) else ()))]


def running_statuses() -> list[tuple[str, dict[str, Any]]]:
    """Each running Portico's socket and status, which always has `ok` and `pid`."""
    folder = control_folder()
    statuses = [
        (name, send_command(folder, name, "status", _STATUS_S)) for name in socket_names(folder)
    ]
    return [
        (name, {"pid": int(name.partition(".")[0]), **status})
        for name, status in statuses
        if status is not None
    ]


def list_porticos(given: str | None, version: str) -> tuple[list[RunningPortico], str]:
    """The running Porticos, or those of the given config; the config's gateway is added if it is
    not running. Also return why the config cannot be read, if it cannot."""
    found = [RunningPortico(True, status) for _, status in running_statuses()]
    path = given or config_file()
    if given is None and not os.path.lexists(path):
        return found, "" if found else nothing_runs(path)
    here = [one for one in found if serves(one.status, path)]
    if here:
        return (found if given is None else here), ""
    found = found if given is None else []
    try:
        return [*found, RunningPortico(False, _cached_status(path, version))], ""
    except ConfigError as error:
        return found, str(error)


def serves(status: dict[str, Any], path: str) -> bool:
    """True if this is the status of a gateway of the config at this path."""
    return os.path.realpath(str(status.get("config"))) == os.path.realpath(path)


def owners(config: str) -> tuple[str, list[str]]:
    """The folder of control sockets, and the sockets of this config's gateways, of any account."""
    from portico.edge.windows.owner_lock import owners_of
    from portico.gateway.serve.serve_options import key_of

    folder = control_folder()
    live = []
    for name in owners_of(folder, key_of(config)):
        status = send_command(folder, name, "status", _STATUS_S)
        # The pid may belong to another process by now; a starting gateway omits its config.
        if status is not None and status.get("config", config) == config:
            live.append(name)
    return folder, sorted(live, key=lambda name: int(name.partition(".")[0]))


def nothing_runs(path: str) -> str:
    """The message for a user without a config or a running gateway."""
    return (
        f"no gateway is running, and there is no config at {path}; "
        "create it with `portico servers add NAME COMMAND`"
    )


def _cached_status(path: str, version: str) -> dict[str, Any]:
    from portico.core.config.read import read
    from portico.gateway.serve.cached_catalogs import cached_status

    config = read(path)
    cached = cached_status(config, version)
    for server in cached["servers"]:
        server.update(state="not running", starts=None)
    about = {"config": config.path, "disabled": config.disabled, "warnings": config.warnings}
    return about | cached


def _wrapped_server(status: dict[str, Any]) -> dict[str, Any]:
    """The server of a `wrap`, in the form in which a gateway reports each of its servers."""
    connections = status.get("connections") or []
    states = [str(connection.get("state")) for connection in connections]
    lists = status.get("lists") or {}
    return {
        **{key: value for key, value in status.items() if key not in _OF_PROCESS},
        "state": _wrapped_state(status, states),
        "tools": lists.get("tools", 0),
        "pending": not lists,
    }


def _wrapped_state(status: dict[str, Any], states: list[str]) -> str:
    login = status.get("login")
    if isinstance(login, dict) and login.get("needed"):
        return "login"
    if status.get("breaker") == "open":
        return "failing"
    return ", ".join(states) or "not started"
