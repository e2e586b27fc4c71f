"""Runs every check of a setup, in an order that reports each fault once, and prints the result."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct, field

from portico.commands.console.agent_check import check_agent
from portico.commands.console.render import Screen
from portico.commands.console.running import RunningPortico, list_porticos
from portico.commands.doctor.faults import CHECKS, FAULTS, Finding, finding
from portico.commands.doctor.process_checks import check_clients, check_gateways, check_orphans
from portico.commands.doctor.server_checks import (
    check_commands,
    check_logins,
    check_servers,
    failures,
    old_catalogs,
    versions,
)
from portico.commands.doctor.setup_checks import (
    check_disk,
    check_permissions,
    read_config,
    untrusted,
)
from portico.core.config.paths import working_folder
from portico.core.config.schema import Config
from portico.core.model.wording import counted


class Diagnosis(Struct):
    """The problems of a setup, and other facts by check."""

    findings: list[Finding] = field(default_factory=list)
    facts: dict[str, list[str]] = field(default_factory=dict)

    def of(self, check: str) -> list[Finding]:
        """Return the problems that one check found."""
        return [one for one in self.findings if FAULTS[one.fault].check == check]

    @property
    def open(self) -> list[Finding]:
        """The problems that remain."""
        return [one for one in self.findings if not one.is_fixed]

    def fix(self) -> None:
        """Remove the problems that can be removed safely."""
        for one in self.findings:
            if one.fix is not None:
                try:
                    one.fix()
                    one.is_fixed = True
                except OSError as error:
                    one.remedy = f"{one.remedy} (the fix failed: {error.strerror})"


async def diagnose(
    path: str,
    version: str,
    *,
    within_s: float | None,
    min_free_mb: int,
    progress: Callable[[str], None],
) -> Diagnosis:
    """Check everything; `version` is ours, `progress` gets the name of each check."""
    found = Diagnosis()
    progress(CHECKS[0])
    config, problems = read_config(path)
    found.findings += problems
    found.findings += check_permissions(config)
    found.findings += check_disk(min_free_mb)
    found.findings += check_orphans()
    porticos, _ = list_porticos(path if config is None else config.path, version)
    found.findings += check_gateways(porticos, version)
    if config is not None:
        found.findings += check_clients(config.path)
        await _check_servers(found, config, porticos, version, within_s, progress)
        await _check_agents(found, config, progress)
    return found


async def _check_servers(
    found: Diagnosis,
    config: Config,
    porticos: list[RunningPortico],
    version: str,
    within_s: float | None,
    progress: Callable[[str], None],
) -> None:
    problems, found.facts["commands"], out = check_commands(config)
    found.findings += problems
    others = untrusted(config)
    out |= {name for name, one in config.components.items() if others.keys() & {*one.files}}
    problems, logged_out = check_logins(config)
    found.findings += problems
    out |= logged_out
    progress("servers")
    outcomes = await check_servers(config, out, version, within_s)
    found.findings += failures(outcomes)
    found.facts["protocol"] = versions(outcomes)
    found.findings += old_catalogs(porticos, outcomes)


async def _check_agents(found: Diagnosis, config: Config, progress: Callable[[str], None]) -> None:
    entries = () if config.agents is None else config.agents.entries.values()
    facts = found.facts["agents"] = []
    for entry in entries:
        if not entry.enabled or entry.problem:  # which the check of the config has reported
            continue
        progress(f"agent {entry.id}")
        outcome = await check_agent(entry, working_folder() or "/")
        if outcome["ok"]:
            login = "logged in" if outcome["logged_in"] else "login unknown"
            facts.append(f"{entry.id}: {login}")
        elif outcome["logged_in"] is False:
            what, _, remedy = outcome["error"].partition(": ")
            found.findings.append(finding("agent-login", what, remedy=remedy))
        else:
            found.findings.append(finding("agent", outcome["error"], agent=entry.id))


def to_json(path: str, found: Diagnosis) -> dict[str, Any]:
    """Return a diagnosis as JSON data."""
    problems = [
        {
            "check": FAULTS[one.fault].check,
            "fault": one.fault,
            "problem": one.problem,
            "remedy": one.remedy,
            "fixable": one.fix is not None,
            "fixed": one.is_fixed,
        }
        for one in found.findings
    ]
    facts = {check: found.facts.get(check, []) for check in CHECKS}
    return {"ok": not found.open, "config": path, "problems": problems, "facts": facts}


def print_diagnosis(screen: Screen, found: Diagnosis) -> None:
    """Print each check, its problems and their remedies."""
    width = max(map(len, CHECKS))
    for check in CHECKS:
        problems = found.of(check)
        shown = counted(len(problems), "problem") if problems else "ok"
        screen.print(f"{check.ljust(width)}  {shown}", "red" if problems else "green")
        for fact in found.facts.get(check, ()):
            screen.print(f"  {fact}", "dim")
        for one in problems:
            screen.print(f"  {one.problem}")
            screen.print(f"    {'fixed' if one.is_fixed else f'remedy: {one.remedy}'}", "yellow")
    if not found.open:
        screen.print("no problems" if not found.findings else "all problems are fixed", "bold")
        return
    fixable = [one for one in found.open if one.fix is not None]
    more = f"; `portico doctor --fix` fixes {len(fixable)} of them" if fixable else ""
    screen.print(f"{counted(len(found.open), 'problem')}{more}", "bold")
