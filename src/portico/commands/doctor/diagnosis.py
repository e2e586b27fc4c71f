"""Runs every check of a setup, in an order in which one fault is reported once."""

from collections.abc import Callable

from msgspec import Struct, field

from portico.commands.console.agent_check import check_agent
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
