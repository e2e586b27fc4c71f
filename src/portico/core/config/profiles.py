"""Reads profiles: several components under one name, in order."""

import os
from collections.abc import Iterable, Mapping
from typing import Any

from portico.core.config.expand import Sources
from portico.core.config.schema import Profile
from portico.core.config.values import read_table, readers
from portico.core.documents.names import is_valid_name, valid_name
from portico.core.documents.problems import Path, Report, quoted

_URLS = ("http://", "https://")


def read_profiles(
    report: Report, table: Any, entries: Iterable[str], sources: Sources
) -> dict[str, Profile]:
    """Read the table of profiles; `entries` are the names of servers and components."""
    if not isinstance(table, dict):
        read_table(report, ("profiles",), table, {})
        return {}
    taken = set(entries)
    found: dict[str, Profile] = {}
    for name, value in table.items():
        at: Path = ("profiles", name)
        if not is_valid_name(name):
            report.wrong(at, "is not a valid profile name", f"write {valid_name(name)}")
        elif name in taken:
            report.wrong(at, "a server or component has the same name", "rename one of them")
        read = read_table(report, at, value, readers(Profile))
        members = tuple(_placed(one, sources) for one in read.get("components", ()))
        found[name] = Profile(base=read.get("base", ""), components=members)
    _check_bases(report, found)
    return found


def _placed(member: str, sources: Sources) -> str:
    """Return a member; a file beside the config gets its whole path."""
    if is_valid_name(member) or member.startswith(_URLS):
        return member
    path = sources.path(member)
    return path if os.path.exists(path) else member


def _check_bases(report: Report, found: Mapping[str, Profile]) -> None:
    for name, profile in found.items():
        at = ("profiles", name, "base")
        if profile.base and profile.base not in found:
            what = f"there is no profile {quoted(profile.base)}"
            report.wrong(at, what, report.suggest(profile.base, found))
            continue
        path = cycle_from(name, found)
        if path:
            shown = " -> ".join(path)
            report.wrong(("profiles", name), f"contains itself: {shown}", "remove one of them")


def cycle_from(name: str, profiles: Mapping[str, Profile]) -> tuple[str, ...]:
    """Return the path from a profile back to itself; empty if there is none."""
    waiting: list[tuple[str, ...]] = [(name,)]
    seen = set()
    while waiting:
        path = waiting.pop()
        if path[-1] in seen or path[-1] not in profiles:
            continue
        seen.add(path[-1])
        for inner in profiles[path[-1]].members:
            if inner == name:
                return (*path, inner)
            waiting.append((*path, inner))
    return ()
