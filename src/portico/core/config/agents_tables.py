"""Reads the tables of agents: their entries with presets and variables, and their defaults."""

import os
from collections.abc import Callable, Mapping
from typing import Any

from portico.core.config.agent_presets import PRESETS
from portico.core.config.agents_schema import (
    AgentCallbacks,
    AgentEntry,
    AgentPermissions,
    AgentPool,
    AgentsConfig,
    AgentsDefaults,
    AgentTimeouts,
    RateLimit,
    Retention,
)
from portico.core.config.entry import EntryReader
from portico.core.config.expand import Sources
from portico.core.config.routing_rules import read_rules
from portico.core.config.values import read_table, readers, table_list
from portico.core.documents.names import is_valid_name, valid_name
from portico.core.documents.problems import Path, Report, quoted

_AGENT = readers(AgentEntry)
_INNER: Mapping[str, Callable[..., Any]] = {
    "rate_limit": RateLimit,
    "permissions": AgentPermissions,
    "callbacks": AgentCallbacks,
    "timeouts": AgentTimeouts,
}
_OF_ACP = (
    "permissions",
    "callbacks",
    "pool",
    "mode",
    "options",
    "auth_method",
    "login",
    "supervised",
    "tools",
    "max_depth",
)
"""Keys of agents that speak ACP; the other kinds have no way to follow them."""

Wanted = Callable[[str], bool | None]
"""Whether to expand an agent's variables; None expands them if it is enabled."""


def read_agents(
    report: Report, data: Mapping[str, Any], sources: Sources, wanted: Wanted
) -> AgentsConfig:
    """Read the three tables, adding their problems to the report."""
    entries = _entries(report, data.get("agents", []), sources, wanted)
    return AgentsConfig(
        defaults=_defaults(report, data.get("agents_defaults", {}), sources),
        entries=entries,
        rules=read_rules(report, data.get("routing", {}), entries),
    )


def _entries(report: Report, value: Any, sources: Sources, wanted: Wanted) -> dict[str, AgentEntry]:
    entries: dict[str, AgentEntry] = {}
    places: dict[str, Path] = {}
    for number, table in enumerate(table_list(report, ("agents",), value)):
        at: Path = ("agents", number)
        before = len(report.problems)
        found = read_table(report, at, table, _AGENT)
        id = found.get("id")
        if id is None:
            if isinstance(table, dict) and "id" not in table:
                report.wrong(at, "has no id", "add one")
        elif not is_valid_name(id):
            report.wrong((*at, "id"), "is not a valid id", f"write {valid_name(id)}")
        elif id in places:
            for place in (places[id], at):
                what = f"{quoted(id)} is the id of two agents"
                report.wrong((*place, "id"), what, "rename one of them")
        else:
            places[id] = at
            entries[id] = _entry(report, at, found, sources, wanted(id))
            if len(report.problems) == before:
                _check_policy(report, at, entries[id])
    return entries


def _entry(
    report: Report, at: Path, found: dict[str, Any], sources: Sources, wanted: bool | None
) -> AgentEntry:
    """Complete one agent: its preset, its variables, its inner tables."""
    before = len(report.problems)
    _check_kind(report, at, found)
    _check_callbacks(report, at, found)
    _add_preset(found)
    if len(report.problems) == before:
        _check_complete(report, at, found)
    reading = EntryReader(report, at, found, sources)
    if wanted or (wanted is None and found.get("enabled", True)):
        found["problem"] = reading.expanded()
    elif found.get("enabled", True):
        found["problem"] = "its variables and secrets were not read"
    if found.get("cwd"):
        found["cwd"] = sources.path(found["cwd"])
    if os.sep in found.get("command", ""):
        # Never relative to the folder of a task, whose files are not the user's choice.
        found["command"] = sources.path(found["command"])
    for key, kind in _INNER.items():
        if key in found:
            found[key] = kind(**found[key])
    if "pool" in found:
        found["pool"] = _pool(report, (*at, "pool"), found["pool"])
    return AgentEntry(**found)


def _check_kind(report: Report, at: Path, found: dict[str, Any]) -> None:
    """Reject keys that would promise more than an unsupervised agent can keep."""
    kind = found.get("kind", "acp")
    if kind == "acp":
        return
    for key in _OF_ACP:
        if key in found:
            what = f"has no effect: an agent of kind {kind} cannot be supervised"
            report.wrong((*at, key), what, 'remove it, or use kind = "acp"')
    if "preset" in found:
        report.wrong((*at, "preset"), "is for kind acp only", "remove it or kind")


def _check_callbacks(report: Report, at: Path, found: dict[str, Any]) -> None:
    preset = PRESETS.get(found.get("preset", ""))
    fs = found.get("callbacks", {}).get("fs", "off")
    if preset is not None and fs in preset.refused_fs:
        what = f"{quoted(fs)} does not work: {preset.refused_fs[fs]}"
        report.wrong((*at, "callbacks", "fs"), what, 'use "write" or "off"')


def _check_policy(report: Report, at: Path, entry: AgentEntry) -> None:
    """Reject a policy that an agent would not follow, since it does not ask."""
    why = entry.unsupervised_because
    if why and entry.permissions.restricts:
        how = "use a preset" if entry.known is None else "remove that setting"
        what = f"cannot be enforced: {why}"
        report.wrong((*at, "permissions"), what, f"{how}, or add supervised = true if it does")
    if entry.known is None or entry.supervised or entry.callbacks.reads:
        return
    for key in ("deny", "ask_about"):
        for place, rule in enumerate(getattr(entry.permissions, key)):
            if _is_of_reads(rule):
                what = f"cannot be enforced: {entry.known.name} reads its folder without a request"
                how = "remove it, and keep from that folder what it must not read"
                report.wrong((*at, "permissions", key, place), what, how)


def _is_of_reads(rule: str) -> bool:
    """True for a rule about reads inside the folder of a task."""
    kind, _, path = rule.partition(":")
    return kind in ("read", "search") and not path.strip().startswith(("/", "~"))


def _add_preset(found: dict[str, Any]) -> None:
    """Fill in the keys that are not set."""
    preset = PRESETS.get(found.get("preset", ""))
    if preset is None:
        return
    for key in ("name", "description", "command", "args", "capabilities"):
        found.setdefault(key, getattr(preset, key))
    found["env"] = {**preset.env, **found.get("env", {})}
    found.setdefault("mode", preset.modes[0])


def _check_complete(report: Report, at: Path, found: dict[str, Any]) -> None:
    if "command" not in found:
        names = ", ".join(PRESETS)
        report.wrong(at, "has no command", f"add one, or a preset: {names}")
    if not found.get("capabilities"):
        report.wrong(at, "has no capabilities", "list the task types that it accepts")


def _pool(report: Report, at: Path, found: dict[str, Any]) -> AgentPool:
    least = found.get("min", 0)
    found.setdefault("max", max(least, AgentPool().max))
    if least > found["max"]:
        report.wrong((*at, "min"), "is more than max", "lower it, or raise max")
    return AgentPool(**found)


def _defaults(report: Report, value: Any, sources: Sources) -> AgentsDefaults:
    at: Path = ("agents_defaults",)
    found = read_table(report, at, value, readers(AgentsDefaults))
    if "keep_tasks" in found:
        found["keep_tasks"] = Retention(**found["keep_tasks"])
    if "roots" in found:
        found["roots"] = _Roots(report, at, found, sources).resolved()
    return AgentsDefaults(**found)


class _Roots(EntryReader):
    """Expands the roots; one with an unresolved reference is left out."""

    def resolved(self) -> tuple[str, ...]:
        """The absolute paths."""
        self.expanded()
        paths = (self.sources.path(one) for one in self.found["roots"] if one)
        return tuple(dict.fromkeys(paths))

    def expand(self) -> None:
        """Expand each root."""
        at = self.key("roots")
        roots = enumerate(self.found["roots"])
        self.found["roots"] = [
            self.one((*at, number), one, may_be_reference=False) for number, one in roots
        ]
