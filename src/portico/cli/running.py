"""Who runs, and what is behind them: each Portico of this user, and the config's if it does not."""

import os
from typing import Any

from msgspec import Struct

from portico.config.paths import config_file, control_folder
from portico.config.problems import ConfigError
from portico.windows.control import ask, names

_STATUS_S = 5.0
_PASSING = ("age_s", "connections", "held", "lists")
"""What changes although nothing happens, or too often to be told."""


class RunningPortico(Struct):
    """A gateway or a `wrap`, or a gateway that does not run."""

    is_running: bool
    told: dict[str, Any]

    @property
    def servers(self) -> list[dict[str, Any]]:
        """How each server behind it fares, and then those that are switched off."""
        several = self.told.get("servers")
        if isinstance(several, list):
            off = [{"server": name, "state": "disabled"} for name in self.told.get("disabled", ())]
            return [*(one for one in several if isinstance(one, dict)), *off]
        return [_alone(self.told)] if "server" in self.told else []

    @property
    def error(self) -> str:
        """Why it says nothing of itself."""
        return str(self.told.get("error") or "")

    @property
    def rejected(self) -> str:
        """The problems for which it keeps a previous config, each on its line."""
        return str(self.told.get("rejected") or "")

    @property
    def title(self) -> str:
        """Who it is, in a line."""
        if not self.is_running:
            return f"not running: {self.told.get('config')}, as far as is known"
        process = f"process {self.told.get('pid')}"
        url = [str(self.told["url"])] if self.told.get("url") else []
        gateway = self.told.get("gateway")
        if not isinstance(gateway, dict):
            return ", ".join([f"wrap: {process}" if "server" in self.told else process, *url])
        from portico.cli.status import span
        from portico.model.wording import counted

        parts = [
            f"serve: {process}",
            str(self.told.get("config")),
            *url,
            counted(gateway.get("tools"), "tool"),
            *([counted(self.told["windows"], "window")] if self.told.get("windows") else []),
            f"exposes {'search' if gateway.get('expose') == 'search' else 'all of them'}",
            f"up {span(gateway.get('uptime_s'))}",
        ]
        return ", ".join(parts)

    @property
    def as_data(self) -> dict[str, Any]:
        """All of it, for programs."""
        told = {key: value for key, value in self.told.items() if key != "ok"}
        return {"running": self.is_running, **told, "servers": self.servers}

    @property
    def lasting(self) -> object:
        """What must differ for it to be worth telling again."""
        kept = [{k: v for k, v in one.items() if k not in _PASSING} for one in self.servers]
        return (self.is_running, self.told.get("pid"), self.error, self.rejected, kept)


def all_told() -> list[tuple[str, dict[str, Any]]]:
    """What each that lives says of itself, always with `ok` and `pid`, beside its socket."""
    folder = control_folder()
    asked = [(name, ask(folder, name, "status", _STATUS_S)) for name in names(folder)]
    return [
        (name, {"pid": int(name.partition(".")[0]), **told})
        for name, told in asked
        if told is not None
    ]


def all_of_them(given: str | None) -> tuple[list[RunningPortico], str]:
    """All that run, or those of the given config, and the config's own if none of them is that;
    beside it why the config cannot be read, if so."""
    found = [RunningPortico(True, told) for _, told in all_told()]
    path = given or config_file()
    if given is None and not os.path.lexists(path):
        return found, "" if found else nothing(path)
    here = [one for one in found if serves(one.told, path)]
    if here:
        return (found if given is None else here), ""
    found = found if given is None else []
    try:
        return [*found, RunningPortico(False, _known(path))], ""
    except ConfigError as error:
        return found, str(error)


def serves(told: dict[str, Any], path: str) -> bool:
    """Whether a Portico that told this of itself is a gateway of the config at this path."""
    return os.path.realpath(str(told.get("config"))) == os.path.realpath(path)


def owners(config: str) -> tuple[str, list[str]]:
    """Where control sockets are, and which lead to a gateway of this config, of any account."""
    from portico.gateway.serve_options import key_of
    from portico.windows.owner_lock import owners_of

    folder = control_folder()
    told = [
        (name, ask(folder, name, "status", _STATUS_S)) for name in owners_of(folder, key_of(config))
    ]
    # A number may be another process's by now; one that has just begun does not say its config.
    lives = [name for name, one in told if one is not None and one.get("config", config) == config]
    return folder, sorted(lives, key=lambda name: int(name.partition(".")[0]))


def nothing(path: str) -> str:
    """What to say where there is neither a config nor anything that runs."""
    how = "create it with `portico servers add NAME COMMAND`"
    return f"no gateway runs, and there is no config at {path}; {how}"


def _known(path: str) -> dict[str, Any]:
    from portico import __version__
    from portico.config.read import read
    from portico.gateway.cached_catalogs import known

    config = read(path)
    told = known(config, __version__)
    for one in told["servers"]:
        one.update(state="not running", starts=None)
    return {"config": config.path, "disabled": config.disabled, "warnings": config.warnings, **told}


def _alone(told: dict[str, Any]) -> dict[str, Any]:
    """The one server of a `wrap`, as a gateway tells of each."""
    connections = told.get("connections") or []
    states = [str(connection.get("state")) for connection in connections]
    failing = told.get("breaker") == "open"
    lists = told.get("lists") or {}
    return {
        **{key: value for key, value in told.items() if key not in ("ok", "pid", "tasks", "url")},
        "state": "failing" if failing else ", ".join(states) or "not started",
        "tools": lists.get("tools", 0),
        "pending": not lists,
    }
