"""Who runs, and what is behind them: each Portico of this user, and the config's if it does not."""

import os
from typing import Any

from msgspec import Struct

from portico.config.paths import config_file, control_folder
from portico.config.problems import ConfigError
from portico.windows.control import send_command, socket_names

_STATUS_S = 5.0
_VOLATILE = ("age_s", "connections", "held", "lists")
"""What changes although nothing happens, or too often to be told."""


class RunningPortico(Struct):
    """A gateway or a `wrap`, or a gateway that does not run."""

    is_running: bool
    status: dict[str, Any]

    @property
    def servers(self) -> list[dict[str, Any]]:
        """How each server behind it fares, and then those that are switched off."""
        status = self.status
        servers = status.get("servers")
        if isinstance(servers, list):
            off = [{"server": name, "state": "disabled"} for name in status.get("disabled", ())]
            return [*(one for one in servers if isinstance(one, dict)), *off]
        return [_wrapped_server(status)] if "server" in status else []

    @property
    def error(self) -> str:
        """Why it says nothing of itself."""
        return str(self.status.get("error") or "")

    @property
    def rejected(self) -> str:
        """The problems for which it keeps a previous config, each on its line."""
        return str(self.status.get("rejected") or "")

    @property
    def title(self) -> str:
        """Who it is, in a line."""
        if not self.is_running:
            return f"not running: {self.status.get('config')}, as far as is known"
        process = f"process {self.status.get('pid')}"
        url = [str(self.status["url"])] if self.status.get("url") else []
        gateway = self.status.get("gateway")
        if not isinstance(gateway, dict):
            return ", ".join([f"wrap: {process}" if "server" in self.status else process, *url])
        from portico.cli.status import duration
        from portico.model.wording import counted

        parts = [
            f"serve: {process}",
            str(self.status.get("config")),
            *url,
            counted(gateway.get("tools"), "tool"),
            *([counted(self.status["windows"], "window")] if self.status.get("windows") else []),
            f"exposes {'search' if gateway.get('expose') == 'search' else 'all of them'}",
            f"up {duration(gateway.get('uptime_s'))}",
        ]
        return ", ".join(parts)

    @property
    def as_data(self) -> dict[str, Any]:
        """All of it, for programs."""
        status = {key: value for key, value in self.status.items() if key != "ok"}
        return {"running": self.is_running, **status, "servers": self.servers}

    @property
    def significant_state(self) -> object:
        """What must differ for it to be worth telling again."""
        kept = [{k: v for k, v in one.items() if k not in _VOLATILE} for one in self.servers]
        return (self.is_running, self.status.get("pid"), self.error, self.rejected, kept)


def running_statuses() -> list[tuple[str, dict[str, Any]]]:
    """What each that lives says of itself, always with `ok` and `pid`, beside its socket."""
    folder = control_folder()
    statuses = [
        (name, send_command(folder, name, "status", _STATUS_S)) for name in socket_names(folder)
    ]
    return [
        (name, {"pid": int(name.partition(".")[0]), **status})
        for name, status in statuses
        if status is not None
    ]


def list_porticos(given: str | None) -> tuple[list[RunningPortico], str]:
    """All that run, or those of the given config, and the config's own if none of them is that;
    beside it why the config cannot be read, if so."""
    found = [RunningPortico(True, status) for _, status in running_statuses()]
    path = given or config_file()
    if given is None and not os.path.lexists(path):
        return found, "" if found else nothing_runs(path)
    here = [one for one in found if serves(one.status, path)]
    if here:
        return (found if given is None else here), ""
    found = found if given is None else []
    try:
        return [*found, RunningPortico(False, _cached_status(path))], ""
    except ConfigError as error:
        return found, str(error)


def serves(status: dict[str, Any], path: str) -> bool:
    """Whether a Portico that told this of itself is a gateway of the config at this path."""
    return os.path.realpath(str(status.get("config"))) == os.path.realpath(path)


def owners(config: str) -> tuple[str, list[str]]:
    """Where control sockets are, and which lead to a gateway of this config, of any account."""
    from portico.gateway.serve_options import key_of
    from portico.windows.owner_lock import owners_of

    folder = control_folder()
    live = []
    for name in owners_of(folder, key_of(config)):
        status = send_command(folder, name, "status", _STATUS_S)
        # The pid may belong to another process by now; a starting gateway omits its config.
        if status is not None and status.get("config", config) == config:
            live.append(name)
    return folder, sorted(live, key=lambda name: int(name.partition(".")[0]))


def nothing_runs(path: str) -> str:
    """What to say where there is neither a config nor anything that runs."""
    how = "create it with `portico servers add NAME COMMAND`"
    return f"no gateway runs, and there is no config at {path}; {how}"


def _cached_status(path: str) -> dict[str, Any]:
    from portico import __version__
    from portico.config.read import read
    from portico.gateway.cached_catalogs import cached_status

    config = read(path)
    cached = cached_status(config, __version__)
    for server in cached["servers"]:
        server.update(state="not running", starts=None)
    about = {"config": config.path, "disabled": config.disabled, "warnings": config.warnings}
    return about | cached


def _wrapped_server(status: dict[str, Any]) -> dict[str, Any]:
    """The one server of a `wrap`, as a gateway tells of each."""
    connections = status.get("connections") or []
    states = [str(connection.get("state")) for connection in connections]
    failing = status.get("breaker") == "open"
    lists = status.get("lists") or {}
    return {
        **{key: value for key, value in status.items() if key not in ("ok", "pid", "tasks", "url")},
        "state": "failing" if failing else ", ".join(states) or "not started",
        "tools": lists.get("tools", 0),
        "pending": not lists,
    }
