"""Readers of the values that only the tables of agents have."""

import os
import re
from typing import Any

from portico.core.config.values import BAD, any_table, text, texts
from portico.core.documents.problems import Path, Report, quoted

TOOL_KINDS = (
    "read",
    "edit",
    "delete",
    "move",
    "search",
    "execute",
    "think",
    "fetch",
    "switch_mode",
    "other",
)
"""The kinds of tools that ACP defines."""


def words(report: Report, at: Path, value: Any) -> Any:
    """A list of different strings that are not blank."""
    found = texts(report, at, value)
    if found is BAD:
        return BAD
    seen: set[str] = set()
    for place, one in enumerate(found):
        if not isinstance(value[place], str):
            continue  # reported
        if not one.strip():
            report.wrong((*at, place), "is empty", "set a value or remove it")
        elif one in seen:
            report.wrong((*at, place), f"{quoted(one)} is listed twice", "remove one of them")
        seen.add(one)
    return found


def permission_rules(report: Report, at: Path, value: Any) -> Any:
    """A list of `KIND` or `KIND:PATH` rules; `*` is every kind."""
    found = words(report, at, value)
    for place, one in enumerate(() if found is BAD else found):
        kind, colon, path = one.partition(":")
        if one.strip() and kind != "*" and kind not in TOOL_KINDS:
            what = f"{quoted(kind)} is not a kind of tool"
            report.wrong((*at, place), what, report.suggest(kind, TOOL_KINDS))
        elif colon and not path.strip():
            report.wrong((*at, place), "has no path after the colon", "add one or remove the colon")
        elif mistake := _mistake_in(path.strip()):
            report.wrong((*at, place), *mistake)
    return found


def _mistake_in(path: str) -> tuple[str, str] | None:
    """Return why a pattern of paths would never match, and what to write; None if it can."""
    if "${" in path:
        return "has a variable, and rules have none", "write the path itself, or ~ for your home"
    if "://" in path:
        return "is for a URL, and rules are for paths", "write a path, or only the kind of tool"
    if ".." in path.split("/"):
        return "has `..` in its path, which never matches", "write the path without it, from / or ~"
    if "\\" in path:
        return "has a backslash in its path", "separate folders with /"
    if path.startswith("!"):
        return "has a path that begins with !, which is not supported", "use allow or deny instead"
    if re.search(r"\{[^{}]*,[^{}]*\}", path):
        return "has alternatives in braces, which are not supported", "write one rule for each"
    if os.path.expanduser(path).startswith("~"):
        name = path.partition("/")[0]
        return f"{quoted(name)} is not the home folder of a user", "write ~/ or the path itself"
    return None


def session_options(report: Report, at: Path, value: Any) -> Any:
    """A table of strings, and of true or false."""
    found = any_table(report, at, value)
    if found is BAD:
        return BAD
    checked = {
        key: one if isinstance(one, bool) else text(report, (*at, key), one)
        for key, one in found.items()
    }
    return {key: "" if one is BAD else one for key, one in checked.items()}
