"""Checks of servers: their commands, whether they respond, their versions and stored lists.

The start of one server: `console/server_check.py`.
"""

import os
import shutil
import subprocess
from typing import Any

from portico.commands.console.login_views import configured_login, login_warning
from portico.commands.console.running import RunningPortico
from portico.commands.console.server_check import check_each
from portico.commands.console.tables import duration, shortened
from portico.commands.doctor.faults import Finding, finding
from portico.core.config.schema import ComponentEntry, Config, ServerEntry

_VERSION_S = 30.0
_OLD_S = 30 * 86_400
_MAX_ERROR = 300
_BY_KIND = {"version": "wrong-version", "login": "login"}
"""The faults of failures of some kinds."""
_RUNTIMES = ("node", "npx", "python", "python3", "uv", "uvx", "docker", "deno", "bun", "bunx")
"""Programs that print their version; any other command might start a server instead."""


def check_commands(config: Config) -> tuple[list[Finding], list[str], set[str]]:
    """Find the commands of enabled servers; return problems, versions, and what cannot start."""
    findings: list[Finding] = []
    facts: dict[str, str] = {}
    out: set[str] = set()
    for name, entry in config.entries.items():
        if not entry.enabled or entry.problem or not entry.command or _is_of_folder(entry):
            continue
        path = entry.env.get("PATH", os.environ.get("PATH"))
        found = shutil.which(entry.command, path=path)
        if found is None:
            what = f"{name}: there is no command {entry.command!r}"
            findings.append(finding("no-command", what, command=entry.command, server=name))
            out.add(name)
        elif os.path.basename(entry.command) in _RUNTIMES:
            if found not in facts:
                facts[found] = _version(found)
                if not facts[found]:
                    what = f"{found} --version fails"
                    findings.append(finding("broken-runtime", what, command=found))
            if not facts[found]:
                out.add(name)
    return findings, [f"{found}: {shown}" for found, shown in facts.items() if shown], out


def _is_of_folder(entry: ServerEntry | ComponentEntry) -> bool:
    """True for a command whose path starts at the folder of a window."""
    return "/" in entry.command and not os.path.isabs(entry.command)


def _version(program: str) -> str:
    """The version that a program prints; empty if it fails."""
    try:
        done = subprocess.run(
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_VERSION_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return shortened(done.stdout.strip(), 80) if done.returncode == 0 else ""


def check_logins(config: Config) -> tuple[list[Finding], set[str]]:
    """Find logins that have ended or end soon; return problems, and the servers without one."""
    findings, out = [], set()
    for name, entry in config.entries.items():
        login = configured_login(entry).get("login") if entry.enabled else None
        if login is None:
            continue
        if login["needed"]:
            findings.append(finding("login", f"{name} {login['needed']}", command=login["command"]))
            out.add(name)
        elif warning := login_warning(name, login):
            what = warning.partition("; ")[0]
            findings.append(finding("login-ends", what, command=login["command"]))
    return findings, out


async def check_servers(
    config: Config, out: set[str], version: str, within_s: float | None
) -> list[dict[str, Any]]:
    """Start or reach every enabled server that can be; return their outcomes."""
    entries = config.entries.items()
    names = [name for name, one in entries if one.enabled and not one.problem and name not in out]
    return await check_each(config.path, names, version, within_s)


def failures(outcomes: list[dict[str, Any]]) -> list[Finding]:
    """The servers that do not respond, or speak no version that we know."""
    found = []
    for one in outcomes:
        if not one["ok"]:
            fault = _BY_KIND.get(one.get("kind", ""), "unreachable")
            what = f"{one['server']}: {shortened(one['error'], _MAX_ERROR)}"
            command = f"portico servers login {one['server']}"
            found.append(finding(fault, what, server=one["server"], command=command))
        elif one["transport"] == "sse":
            what = f"{one['server']} is reached over HTTP+SSE"
            found.append(finding("old-transport", what, server=one["server"]))
    return found


def versions(outcomes: list[dict[str, Any]]) -> list[str]:
    """The protocol version of each server."""
    return [f"{one['server']}: {one['protocolVersion']}" for one in outcomes if one["ok"]]


def old_catalogs(porticos: list[RunningPortico], outcomes: list[dict[str, Any]]) -> list[Finding]:
    """The servers that respond, and whose stored lists are old all the same."""
    well = {one["server"] for one in outcomes if one["ok"]}
    ages = {
        one["server"]: one["age_s"]
        for portico in porticos
        for one in portico.servers
        if one.get("server") in well and (one.get("age_s") or 0) > _OLD_S
    }
    return [
        finding("old-catalog", f"{name}: its lists are {duration(age)} old", server=name)
        for name, age in ages.items()
    ]
