"""Reads one component's entry: its file or command, and the options that it has like a server."""

import os
import shlex
import stat
from collections.abc import Sequence
from typing import Any

from portico.core.config.component_grants import (
    ComponentGrants,
    InvalidGrant,
    MissingFolder,
    add_grants,
)
from portico.core.config.entry import EntryReader
from portico.core.config.expand import Sources, Unresolved
from portico.core.config.schema import (
    COMPONENT,
    ComponentEntry,
    Timeouts,
    ToolFilter,
    file_of,
)
from portico.core.config.values import read_table
from portico.core.documents.problems import Path, Report

_OF_COMMAND = ("args",)
_OF_PATH = ("handlers", "in_process", "python")
_OF_FILE = ("instance", "grants")
"""Keys that a file has, here or in a registry."""
_OF_PROCESS = (
    *("env", "cwd", "folder", "instances", "sharing", "may_ask", "max_in_flight", "max_tools"),
    "python",
)
"""Keys that only a component in its own process has."""


def read_component(
    report: Report, at: Path, name: str, entry: Any, sources: Sources, wanted: bool | None
) -> ComponentEntry:
    """Read a component's entry, adding its problems to the report.

    `wanted` decides whether to expand its variables; None expands them if it is enabled.
    """
    before = len(report.problems)
    found = read_table(report, at, _known(report, at, entry), COMPONENT)
    if len(report.problems) == before:
        _check_kind(report, at, found)
    reading = _ComponentReader(report, at, found, sources)
    if len(report.problems) == before and "command" in found and "args" not in found:
        reading.split_command()
    if wanted or (wanted is None and found.get("enabled", True)):
        found["problem"] = reading.expanded()
    for key in ("path", "handlers", "python"):
        if found.get(key):
            found[key] = sources.path(found[key])
    if not isinstance(found.get("grants"), ComponentGrants):
        found.pop("grants", None)  # lines that were not parsed: another entry is wanted
    found["tools"] = ToolFilter(**found.get("tools", {}))
    found["timeouts"] = Timeouts(**found.get("timeouts", {}))
    return ComponentEntry(name=name, **found)


def _known(report: Report, at: Path, entry: Any) -> Any:
    """Return the entry without the key of a server, which is reported."""
    if not isinstance(entry, dict):
        return entry
    if "url" in entry:
        report.wrong((*at, "url"), "a component has no url", "write it as a server in [servers]")
    return {key: one for key, one in entry.items() if key != "url"}


def _check_kind(report: Report, at: Path, found: dict[str, Any]) -> None:
    """Require one of path, oci and command, and only keys that match it."""
    kinds = [key for key in ("path", "oci", "command") if key in found]
    if len(kinds) > 1:
        report.wrong(at, f"has both {kinds[0]} and {kinds[1]}", "remove one of them")
    elif not kinds:
        report.wrong(at, "has neither path nor command", 'add path = "file.py" or a command')
    elif "path" not in found:
        what = "a command" if "command" in found else "a reference"
        _reject(report, at, found, _OF_PATH, f"is for a path, not {what}")
        if "oci" in found:
            _reject(report, at, found, _OF_COMMAND, "is for a command, not a reference")
        else:
            _reject(report, at, found, _OF_FILE, "is for a path, not a command")
    else:
        _reject(report, at, found, _OF_COMMAND, "is for a command, not a path")
        if found.get("in_process"):
            what = "has no effect with in_process: there is no process of its own"
            _reject(report, at, found, _OF_PROCESS, what)


def _reject(
    report: Report, at: Path, found: dict[str, Any], keys: tuple[str, ...], what: str
) -> None:
    for key in keys:
        if key in found:
            report.wrong((*at, key), what, "remove it")


class _ComponentReader(EntryReader):
    """Expands the values of a component, and checks its files."""

    def split_command(self) -> None:
        """Split a command that is written as one string."""
        try:
            words = shlex.split(self.found["command"])
        except ValueError as error:
            why = f"cannot be split into a command and its arguments: {str(error).lower()}"
            self.report.wrong(self.key("command"), why, "close the quote")
            return
        self.found["command"], self.found["args"] = words[0], tuple(words[1:])

    def expand(self) -> None:
        """Expand the values; a file that cannot be read stops only this component."""
        super().expand()
        for key in ("path", "handlers"):
            if key in self.found:
                at = self.key(key)
                self.found[key] = self.one(at, self.found[key], may_be_reference=False)
                if self.found[key]:
                    self._check_file(at, self.sources.path(self.found[key]))
        if "python" in self.found:
            self._check_python()
        if "grants" in self.found:
            self.found["grants"] = self._granted(self.found["grants"])

    def _granted(self, lines: Sequence[tuple[str, str]]) -> ComponentGrants:
        """Return the grants; a folder or a value that is missing stops only this component."""
        granted = ComponentGrants()
        for key, line in lines:
            at = (*self.key("grants"), key)
            try:
                granted = add_grants([line], self.sources, granted)
            except Unresolved as error:
                self.referenced.add(at)
                self.report.wrong(at, error.what, error.remedy)
            except InvalidGrant as error:
                if isinstance(error, MissingFolder):
                    self.referenced.add(at)
                what, _, remedy = str(error).rpartition("; ")
                self.report.wrong(at, what, remedy)
        return granted

    def _check_python(self) -> None:
        """Expand the path of the Python, and require that it can be run."""
        at = self.key("python")
        given = self.found["python"] = self.one(at, self.found["python"], may_be_reference=False)
        path = self.sources.path(given) if given else ""
        if path and not (os.path.isfile(path) and os.access(path, os.X_OK)):
            self.referenced.add(at)
            how = "give that of an environment, such as .venv/bin/python"
            self.report.wrong(at, f"{path}: is not a program", how)

    def _check_file(self, at: Path, path: str) -> None:
        file = file_of(path)
        why, remedy = _unreadable(file)
        if why:
            self.referenced.add(at)
            self.report.wrong(at, f"{file}: {why}", remedy)


def _unreadable(file: str) -> tuple[str, str]:
    """Return why a file cannot be read, and what to do; empty if it can."""
    try:
        mode = os.stat(file).st_mode
    except OSError as error:
        return error.strerror or str(error), "correct the path"
    if stat.S_ISDIR(mode):
        return "a folder, not a file", "give a file in it"
    if not stat.S_ISREG(mode):
        return "not a regular file", "give a .py or a .json file"
    if not os.access(file, os.R_OK):
        return "cannot be read: Permission denied", "run `chmod u+r` on it"
    return "", ""
