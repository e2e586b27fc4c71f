"""Reads one server's entry: checks its keys, expands variables, and rejects contradictions."""

import os
import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from portico.core.config.auth_settings import auth_settings, check_misplaced
from portico.core.config.expand import Sources, Unresolved, is_elsewhere
from portico.core.config.schema import SERVER, ServerEntry, Timeouts, ToolFilter
from portico.core.config.values import check_url, read_table
from portico.core.documents.problems import ConfigProblem, Path, Report, quoted

# Compiled only when there is a header, to keep startup fast.
_HEADER = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_IN_HEADER = r"[\t\x20-\x7e\x80-\xff]*"


def read_server(
    report: Report,
    at: Path,
    name: str,
    entry: Any,
    sources: Sources,
    wanted: bool | None,
    *,
    of_client: bool,
    auth: Mapping[str, Any] = {},
) -> ServerEntry:
    """Read a server's entry, adding its problems to the report.

    `wanted` decides whether to expand its variables; None expands them if it is enabled. `auth` are
    the defaults of its login.
    """
    before = len(report.problems)
    key_names: dict[str, str] = {}
    if of_client:
        from portico.core.config.clients import read_entry

        found, key_names = read_entry(report, at, entry)
        found.setdefault("trust_hints", False)  # such a file may come with a project
        if name != at[-1]:
            found.setdefault("title", at[-1])
    else:
        found = read_table(report, at, check_misplaced(report, at, entry), SERVER)
    reading = EntryReader(report, at, found, sources, key_names)
    if len(report.problems) == before:
        reading.check_kind()
    if wanted or (wanted is None and found.get("enabled", True)):
        found["problem"] = reading.expanded()
    auth_at, has_auth = reading.key("auth"), "auth" in found
    found["auth"] = auth_settings(report, auth_at, found.get("auth", {}), auth)
    if has_auth and "command" in found:
        report.wrong(auth_at, "is for a url", "a command gets its secrets in env")
    found["tools"] = ToolFilter(**found.get("tools", {}))
    found["timeouts"] = Timeouts(**found.get("timeouts", {}))
    return ServerEntry(name=name, **found)


class EntryReader(Struct):
    """Expands the values of one entry, and reports what is wrong with them."""

    report: Report
    at: Path
    found: dict[str, Any]
    sources: Sources
    key_names: dict[str, str] = {}
    """The file's name of each key that the client names differently."""
    referenced: set[Path] = field(default_factory=set)
    mistakes: set[Path] = field(default_factory=set)

    def check_kind(self) -> None:
        """Require either a command or a URL, and a type that matches it."""
        wrong, at = self.report.wrong, self.at
        command, url = "command" in self.found, "url" in self.found
        kind = self.found.get("type", "")
        if command and url:
            wrong(at, "has both command and url", "remove one of them")
        elif not (command or url):
            wrong(at, "has neither command nor url", "add one of them")
        elif command and kind in ("http", "sse"):
            wrong(
                self.key("type"), f"{kind} needs a url, not a command", "use stdio, or give a url"
            )
        elif url and kind == "stdio":
            wrong(self.key("type"), "stdio needs a command, not a url", "use http or sse")

    def expanded(self) -> str:
        """Expand the values; return the unresolved references, unless the file itself is wrong."""
        report, self.report = self.report, Report()
        self.expand()
        local, self.report = self.report, report
        unresolved: list[ConfigProblem] = []
        for problem in local.problems:
            is_unresolved = problem.at in self.referenced - self.mistakes
            (unresolved if is_unresolved else report.problems).append(problem)
        report.unresolved += unresolved
        return "\n".join(map(str, unresolved))

    def expand(self) -> None:
        """Expand the values, and check those that come from elsewhere."""
        found = self.found
        for key in ("command", "url", "cwd"):
            if key in found:
                found[key] = self.one(self.key(key), found[key], may_be_reference=key == "url")
        if found.get("command", "").startswith("~"):
            found["command"] = os.path.expanduser(found["command"])
        if found.get("folder") == "any" and "url" not in found:
            found["cwd"] = self.sources.path(found.get("cwd", ""))
        elif found.get("cwd"):  # a relative one starts at the folder of the window
            found["cwd"] = os.path.normpath(os.path.expanduser(found["cwd"]))
        if found.get("url"):
            check_url(self.report, self.key("url"), found["url"])
        if "args" in found:
            at = self.key("args")
            args = enumerate(found["args"])
            found["args"] = tuple(self.one((*at, number), one) for number, one in args)
        for key in ("env", "headers", "auth"):
            if key in found:
                at = self.key(key)
                found[key] = {
                    name: self.one((*at, name), one) if isinstance(one, str) else one
                    for name, one in found[key].items()
                }
        self._check_names()

    def one(self, at: Path, raw: str, *, may_be_reference: bool = True) -> str:
        """Resolve one value; empty, with a problem, if that fails."""
        if is_elsewhere(raw):
            self.referenced.add(at)
        try:
            found = self.sources.resolve(raw) if may_be_reference else self.sources.expand(raw)
        except Unresolved as error:
            self.report.wrong(at, error.what, error.remedy)
            if error.is_mistake:
                self.mistakes.add(at)
            return ""
        if "\0" in found:
            self.report.wrong(at, "its value contains a NUL character", "remove it at the source")
        return found

    def _check_names(self) -> None:
        for name in self.found.get("env", ()):
            if not name or "=" in name or "\0" in name:
                at = (*self.key("env"), name)
                self.report.wrong(at, "is not a valid variable name", "rename it")
        for name, value in self.found.get("headers", {}).items():
            at = (*self.key("headers"), name)
            if not re.fullmatch(_HEADER, name):
                self.report.wrong(at, f"{quoted(name)} is not a valid header name", "rename it")
            if not re.fullmatch(_IN_HEADER, value):
                what = "its value contains characters that headers cannot carry"
                self.report.wrong(at, what, "remove line breaks and control characters")

    def key(self, key: str) -> Path:
        """The path of a key in the file."""
        return (*self.at, self.key_names.get(key, key))
