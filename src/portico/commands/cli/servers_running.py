"""`portico servers list` and `refresh`: the configured and the running servers."""

import argparse
import os
import sys
from typing import Any

from msgspec import Struct

from portico.commands.cli.gateway import warn_broken
from portico.commands.console.login_views import (
    configured_login,
    login_line,
    login_warning,
    other_logins,
)
from portico.commands.console.render import Screen, server_error
from portico.commands.console.running import nothing_runs, running_statuses, serves
from portico.commands.console.target import open_client, run
from portico.core.config.paths import config_file, control_folder
from portico.core.config.schema import ComponentEntry, Config, ServerEntry
from portico.core.documents.problems import ConfigError
from portico.core.model.errors import PorticoError
from portico.core.model.wording import counted
from portico.edge.windows.control import send_command as ask_socket

_REFRESH_S = 90.0


class RunningServer(Struct):
    """A server behind a running Portico, or a Portico that does not report its servers."""

    socket: str
    status: dict[str, Any]
    """Its status as reported by its Portico, always with `ok` and `pid`."""
    of_gateway: bool = False
    """It is a member of a gateway, not the server of a `wrap`."""

    @property
    def label(self) -> str:
        """Its name, or that of the process."""
        return str(self.status.get("server") or f"process {self.status.get('pid')}")


def main(options: argparse.Namespace, attempts: int = 3) -> int:
    """List or refresh the servers of all this user's Porticos, or the named server; a refresh is
    repeated if a Portico ends meanwhile."""
    running = [one for name, status in running_statuses() for one in _split_servers(name, status)]
    if options.action == "refresh":
        running = _of_config(running, options.config)
        if not running:
            if options.config is None and not os.path.lexists(config_file()):
                raise PorticoError(nothing_runs(config_file()))
            return run(_refresh_once(options))
        chosen = _added_just_now(running, options) or _select(running, options.name)
        Screen(sys.stderr).print_waiting(f"refreshing {', '.join(one.label for one in chosen)}")
        within_s, by_name = options.timeout or _REFRESH_S, options.name is not None
        refreshed = _refresh(chosen, within_s, by_name=by_name)
        if refreshed is None and attempts == 1:
            raise PorticoError("a gateway ended during the refresh; try again")
        if refreshed is None:
            return main(options, attempts - 1)  # another gateway serves it, or none
        return _report(refreshed, options.json)
    config, problem = _config(options.config)
    merged = _merge(config, running)
    named = {one.label for one in merged}
    merged += [RunningServer("", {"ok": True, **one}) for one in other_logins(named)]
    if config is None and problem is None and not merged:
        raise PorticoError(nothing_runs(options.config or config_file()))
    rows = _select(merged, options.name)
    if config is not None and not rows and not options.json:
        Screen(sys.stdout).print(
            f"no server is configured in {config.path}, and none is running; "
            "add one with `portico servers add NAME COMMAND`"
        )
    code = _report(rows, options.json)
    if problem is None:
        return code
    if _of_config(running, options.config or config_file()):
        warn_broken(problem, "showing the servers of the running gateway and its previous config")
        return code
    Screen(sys.stderr).print(f"portico: {problem}")
    return 1


def _added_just_now(
    running: list[RunningServer], options: argparse.Namespace
) -> list[RunningServer]:
    """The named server in the gateways that have not read the changed config yet; they do so for a
    refresh."""
    path = options.config or config_file()
    if options.name is None or any(one.label == options.name for one in running):
        return []
    config, _ = _config(path)
    entry = None if config is None else config.entries.get(options.name)
    if entry is None or not entry.enabled:
        return []
    gateways = {
        one.socket: {"ok": True, "pid": one.status["pid"], "server": options.name}
        for one in running
        if one.of_gateway and serves(one.status, path)
    }
    return [RunningServer(socket, facts, of_gateway=True) for socket, facts in gateways.items()]


def _of_config(running: list[RunningServer], config: str | None) -> list[RunningServer]:
    """The servers of a config's gateways; all if no config is given."""
    if config is None:
        return running
    return [one for one in running if serves(one.status, config)]


def _config(given: str | None) -> tuple[Config | None, ConfigError | None]:
    """The config with its variables unexpanded; None if there is no default config."""
    from portico.core.config.read import read

    path = given or config_file()
    if given is None and not os.path.lexists(path):
        return None, None
    try:
        return read(path, only=()), None
    except ConfigError as error:
        return None, error


def _split_servers(socket: str, status: dict[str, Any]) -> list[RunningServer]:
    """Split a Portico's status into one entry per server."""
    servers = status.get("servers")
    if not isinstance(servers, list):
        return [RunningServer(socket, status)]
    around = {key: status.get(key) for key in ("ok", "pid", "config")}
    each = [one for one in servers if isinstance(one, dict)]
    return [RunningServer(socket, {**around, **one}, of_gateway=True) for one in each]


def _merge(config: Config | None, running: list[RunningServer]) -> list[RunningServer]:
    """The configured servers with their status, then all other running servers."""
    if config is None:
        return running
    rows, seen = [], set()
    for name, entry in config.entries.items():
        facts = {
            "ok": True,
            "server": name,
            "kind": "server" if name in config.servers else "component",
            "configured": True,
            "enabled": entry.enabled,
            "target": _target(entry),
            "title": entry.title,
            "tags": entry.tags,
            "config": config.path,
            **configured_login(entry),
        }
        here = [
            number
            for number, one in enumerate(running)
            if one.of_gateway
            and one.status.get("server") == name
            and serves(one.status, config.path)
        ]
        seen.update(here)
        several = [running[number] for number in here] or [RunningServer("", {})]
        rows += [
            RunningServer(one.socket, {**one.status, **facts, **_running(one)}, one.of_gateway)
            for one in several
        ]
    return rows + [one for number, one in enumerate(running) if number not in seen]


def _running(one: RunningServer) -> dict[str, Any]:
    """The login as the running gateway knows it: it also knows whether one is needed."""
    login = one.status.get("login")
    return {"login": login} if login else {}


def _target(entry: ServerEntry | ComponentEntry) -> str:
    """The file, command or URL of an entry, without the parts that may be secret."""
    if isinstance(entry, ServerEntry):
        return _redacted_target(entry.command, entry.args, entry.url)
    return entry.path or _redacted_target(entry.command, entry.args, "")


def _redacted_target(command: str, args: tuple[str, ...], url: str) -> str:
    """A command or URL without the parts that may be secret."""
    if not url:
        from portico.commands.cli.wrap import title

        return title([command, *args])
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
    except ValueError:
        return "a URL"
    # Some servers take an API key in the path.
    path = "/".join(
        "…" if len(part) > 20 and "$" not in part else part for part in parts.path.split("/")
    )
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{path}"


def _select(rows: list[RunningServer], wanted: str | None) -> list[RunningServer]:
    """The servers with this name, or else those whose name contains it."""
    if wanted is None:
        return rows
    chosen = [one for one in rows if one.label == wanted]
    chosen = chosen or [one for one in rows if wanted in one.label]
    if not chosen:
        there = ", ".join(sorted({one.label for one in rows}))
        hint = f"choose from {there}" if there else "there are none"
        raise PorticoError(f"there is no server {wanted!r}; {hint}")
    return chosen


def _refresh(
    chosen: list[RunningServer], within_s: float, *, by_name: bool
) -> list[RunningServer] | None:
    """Refresh the servers: all of a Portico in one request, or one request per named server; None
    if a Portico has ended meanwhile."""
    groups: dict[object, list[RunningServer]] = {}
    for number, one in enumerate(chosen):
        groups.setdefault(number if by_name else one.socket, []).append(one)
    found = []
    for group in groups.values():
        first = group[0]
        which = {"server": first.label} if first.of_gateway and by_name else {}
        status = ask_socket(control_folder(), first.socket, "refresh", within_s, **which)
        if status is None:
            return None
        parts = {part.label: part.status for part in _split_servers(first.socket, status)}
        found += [_updated(one, parts.get(one.label, status)) for one in group]
    return found


async def _refresh_once(options: argparse.Namespace) -> int:
    """Refresh the configured servers through a temporary gateway, which caches their lists."""
    from portico.commands.cli.gateway import address_of, query

    options.era, options.token = "auto", ""
    which = {} if options.name is None else {"server": options.name}
    Screen(sys.stderr).print_waiting(f"refreshing {options.name or 'all servers'}")
    async with await open_client(address_of(options), options) as client:
        await query(client, "refresh_tools", **which)
        answer = await query(client, "gateway_status", detail="full", **which)
    status = answer["structuredContent"]
    rows = [RunningServer("", {**one, "ok": not one["error"]}) for one in status["servers"]]
    if not rows and not options.json:
        path = options.config or config_file()
        Screen(sys.stderr).print(f"portico: {path}: no server is enabled; nothing to refresh")
    return _report(rows, options.json)


def _updated(one: RunningServer, status: dict[str, Any]) -> RunningServer:
    """The server with its new status; a failed one reports fewer fields."""
    if one.of_gateway and status.get("error"):
        status = {**status, "ok": False}
    known = {"pid": one.status["pid"], "server": one.status.get("server", "")}
    return RunningServer(one.socket, {**known, **status}, one.of_gateway)


def _report(rows: list[RunningServer], as_json: bool) -> int:
    if as_json:
        Screen(sys.stdout).compact([one.status for one in rows])
    else:
        screen = Screen(sys.stdout)
        # People read columns; programs split at spaces.
        width = max((len(one.label) for one in rows), default=0) if screen.is_terminal else 0
        for one in rows:
            if one.status["ok"]:
                screen.print(_line(one, width))
    for one in rows:
        if warning := login_warning(one.label, one.status.get("login")):
            Screen(sys.stderr).print(f"portico: warning: {warning}")
    failed = [one for one in rows if not one.status["ok"]]
    for one in failed:
        message = server_error(one.label, str(one.status.get("error")))
        Screen(sys.stderr).print(f"portico: {message}")
    return 1 if failed else 0


def _line(one: RunningServer, width: int) -> str:
    status = one.status
    parts = [one.label.ljust(width)]
    if status.get("kind") == "component":
        parts.append("component")
    if status.get("configured"):
        parts.append(status["target"])
        if not status["enabled"]:
            parts.append("disabled")
    if "pid" in status:
        parts.append(f"pid {status['pid']}")
    if "pid" in status or "lists" in status:
        parts += [_states(status), _lists(status)]
    elif status.get("enabled"):
        parts.append("not running")
    login = status.get("login")
    if login:
        parts.append(login_line(login))
    if status.get("error"):
        parts.append(str(status["error"]))
    return "  ".join(parts)


def _states(status: dict[str, Any]) -> str:
    if isinstance(status.get("state"), str):
        return str(status["state"])
    states = [
        f"{one.get('state')} ({one['busy']} calls)" if one.get("busy") else str(one.get("state"))
        for one in status.get("connections") or ()
    ]
    return ", ".join(states) or "not started"


def _lists(status: dict[str, Any]) -> str:
    lists = status.get("lists")
    if lists is None and isinstance(status.get("tools"), int):
        lists = {"tools": status["tools"]}
    counts = [counted(many, kind.removesuffix("s")) for kind, many in (lists or {}).items()]
    return ", ".join(counts) or "not listed yet"
