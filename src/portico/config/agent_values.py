"""Readers of the values that only the tables of agents have."""

from typing import Any

from portico.config.problems import Path, Report, quoted
from portico.config.values import BAD, any_table, text, texts

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
    return found


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
