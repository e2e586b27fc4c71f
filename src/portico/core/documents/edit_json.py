"""Edits JSON text in place, with or without comments: adds, removes and sets members."""

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from portico.core.documents.json_places import json_places
from portico.core.documents.jsonc import gap
from portico.core.documents.places import Place
from portico.core.documents.problems import Path

_LINE_END = re.compile(r"[ \t]*(?://[^\n]*|/\*[^\n]*?\*/[ \t]*)?\r?(\n|$)")
_UNIT = "  "
_places = lru_cache(maxsize=2)(json_places)  # an edit needs the same ones several times


def added(text: str, section: Path, name: str, entry: Mapping[str, Any]) -> str:
    """The text with a server added at the end of its section, which is created if necessary."""
    value: Any = dict(entry)
    at = (*section, name)
    while at[:-1] and not _place(text, at[:-1]):
        value = {at[-1]: value}
        at = at[:-1]
    return _with_member(text, at[:-1], str(at[-1]), value)


def removed(text: str, path: Path) -> str:
    """The text without a member."""
    members = _members(text, path[:-1])
    number = next(n for n, one in enumerate(members) if one.path == path)
    place = members[number]
    comma = gap(text, place.end)
    start, end = place.start, place.end
    if text[comma : comma + 1] == ",":
        end = comma + 1
    elif number:
        # The member before becomes the last, so its comma goes.
        before = gap(text, members[number - 1].end)
        if text[before : before + 1] == ",":
            text = f"{text[:before]}{text[before + 1 :]}"
            start, end = start - 1, end - 1
    return _without_line(text, start, end)


def with_value(text: str, path: Path, value: Any) -> str:
    """The text with a member's value replaced, or with the member added."""
    place = _place(text, path)
    if place is None:
        return _with_member(text, path[:-1], str(path[-1]), value)
    written = json.dumps(value, ensure_ascii=False)
    if isinstance(value, Mapping) and "\n" in text[place.value : place.end]:
        newline = f"{_newline(text)}{_indent(text, place.start)}"
        written = json.dumps(value, indent=_unit(text), ensure_ascii=False).replace("\n", newline)
    return f"{text[: place.value]}{written}{text[place.end :]}"


def _with_member(text: str, outer: Path, key: str, value: Any) -> str:
    around = _place(text, outer)
    assert around is not None
    newline = _newline(text)
    members = _members(text, outer)
    if members and "\n" not in text[around.value : around.end]:
        written = f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}"
        return _after_last(text, members[-1], " ", written)
    inner = (
        _indent(text, members[0].start) if members else _indent(text, around.start) + _unit(text)
    )
    body = json.dumps(value, indent=_unit(text), ensure_ascii=False)
    written = f"{json.dumps(key, ensure_ascii=False)}: {body}".replace("\n", f"{newline}{inner}")
    if members:
        return _after_last(text, members[-1], f"{newline}{inner}", written)
    head, tail = text[: around.value + 1], text[around.value + 1 :]
    closing = f"{newline}{_indent(text, around.start)}"
    comment = tail[: around.end - around.value - 2].rstrip()
    return f"{head}{comment}{newline}{inner}{written}{closing}{text[around.end - 1 :]}"


def _after_last(text: str, last: Place, between: str, written: str) -> str:
    """Insert a member after the last one and the comment on its line."""
    comma = gap(text, last.end)
    if text[comma : comma + 1] == ",":  # the file uses trailing commas, so the new one gets one
        end, comma_here, written = comma + 1, "", f"{written},"
    else:
        end, comma_here = last.end, ","
    comment = _LINE_END.match(text, end)
    stop = comment.start(1) if comment and between.strip(" \t") else end
    if stop > end and text[stop - 1] == "\r":
        stop -= 1
    return f"{text[:end]}{comma_here}{text[end:stop]}{between}{written}{text[stop:]}"


def _without_line(text: str, start: int, end: int) -> str:
    """Remove a span, and its line if nothing else is on it."""
    line = text.rfind("\n", 0, start) + 1
    rest = _LINE_END.match(text, end)
    if not text[line:start].strip() and rest is not None:
        return f"{text[:line]}{text[rest.end() :]}"
    if not text[line:start].strip():
        end += len(text[end:]) - len(text[end:].lstrip(" \t"))
        return f"{text[:start]}{text[end:]}"
    return text[:start].rstrip(" \t") + text[end:]


def _members(text: str, outer: Path) -> list[Place]:
    found = _places(text, outer)
    return [place for place in found if place.path and place.path[:-1] == outer]


def _place(text: str, path: Path) -> Place | None:
    found = _places(text, path[:-1])
    return next((place for place in found if place.path == path), None)


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _indent(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _unit(text: str) -> str:
    """The indentation of the file's outermost members."""
    members = _members(text, ())
    return (_indent(text, members[0].start) if members else "") or _UNIT
