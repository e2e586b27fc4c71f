"""Edits TOML text in place: adds tables at the end, removes tables and keys, sets keys."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from portico.core.documents.places import Place
from portico.core.documents.problems import Path
from portico.core.documents.toml_places import toml_places

_BARE = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_LINES = re.compile(r"[^\n]*\n|[^\n]+")
_ESCAPES = {code: f"\\u{code:04x}" for code in (*range(0x20), 0x7F)} | {
    ord(c): f"\\{mark}" for c, mark in zip('\\"\b\t\n\f\r', '\\"btnfr', strict=True)
}


def added(text: str, section: Path, name: str, entry: Mapping[str, Any]) -> str:
    """The text with a table added at its end."""
    return _with_table(text, f"[{_dotted((*section, name))}]", entry)


def appended(text: str, path: Path, entries: Iterable[Mapping[str, Any]]) -> str:
    """The text with tables appended to a list of tables."""
    for entry in entries:
        text = _with_table(text, f"[[{_dotted(path)}]]", entry)
    return text


def _with_table(text: str, header: str, entry: Mapping[str, Any]) -> str:
    newline = _newline(text)
    lines = [header, *(f"{_key(key)} = {_value(value)}" for key, value in entry.items())]
    before = text
    if before.strip():
        before = before if before.endswith("\n") else f"{before}{newline}"
        before = before if before.endswith(newline * 2) else f"{before}{newline}"
    return before + newline.join(lines) + newline


def _dotted(path: Path) -> str:
    return ".".join(map(_key, path))


def removed(text: str, path: Path) -> str:
    """The text without a server: its tables, the comments above them, its keys elsewhere."""
    lines = _LINES.findall(text)
    gone = [False] * len(lines)
    for first, last in _blocks(text, path):
        for number in range(_with_comments(lines, first), _to_the_end(lines, last) + 1):
            gone[number] = True
    return "".join(_tidy(lines, gone))


def with_value(text: str, path: Path, value: Any) -> str:
    """The text with a key's value replaced, or with the key added to its table."""
    found = toml_places(text)
    same = next((place for place in found if place.path == path and not place.header), None)
    if same is not None:
        return f"{text[: same.value]}{_value(value)}{text[same.end :]}"
    outer = path[:-1]
    written = f"{_key(str(path[-1]))} = {_value(value)}"
    inline = next((place for place in found if place.path == outer and not place.header), None)
    if inline is not None:
        inside = text[inline.value + 1 : inline.end - 1].rstrip()
        comma = "," if inside.strip() else ""
        return f"{text[: inline.value + 1]}{inside}{comma} {written} {text[inline.end - 1 :]}"
    return _with_key(text, found, outer, written)


def _with_key(text: str, found: list[Place], outer: Path, written: str) -> str:
    """The text with a line added after the last of a table's own keys."""
    newline = _newline(text)
    last: Place | None = None
    header: Path = ()
    dotted = ""
    for place in found:
        if place.header:
            header = place.path
        if place.header and place.path == outer:
            last, dotted = place, ""
        elif not place.header and not place.inline and place.path[: len(outer)] == outer:
            rest = outer[len(header) :]
            if header == outer[: len(header)] and (last is None or not last.header or not rest):
                last, dotted = place, "".join(f"{_key(str(part))}." for part in rest)
    if last is None:
        return text
    end = text.find("\n", last.end)
    if end < 0:
        return f"{text}{newline}{dotted}{written}{newline}"
    return f"{text[: end + 1]}{dotted}{written}{newline}{text[end + 1 :]}"


def _blocks(text: str, path: Path) -> list[tuple[int, int]]:
    """The first and the last line of each run of statements that belong to a path."""
    blocks: list[tuple[int, int]] = []
    open_now = False
    for place in toml_places(text):
        if place.inline:
            continue
        if place.path[: len(path)] != path:
            open_now = False
            continue
        first = text.count("\n", 0, place.start)
        last = text.count("\n", 0, place.end)
        if open_now and not place.header:
            blocks[-1] = (blocks[-1][0], last)
        else:
            blocks.append((first, last))
        open_now = True
    return blocks


def _with_comments(lines: list[str], first: int) -> int:
    """The first line of the comment right above; one at the top describes the file and stays."""
    start = first
    while start and lines[start - 1].lstrip().startswith("#"):
        start -= 1
    return start or first


def _to_the_end(lines: list[str], last: int) -> int:
    """The last line of the comment right below, unless the next statement follows it directly."""
    end = last
    while end + 1 < len(lines) and lines[end + 1].lstrip().startswith("#"):
        end += 1
    followed = end + 1 < len(lines) and lines[end + 1].strip()
    return last if followed else end


def _tidy(lines: list[str], gone: list[bool]) -> list[str]:
    """The remaining lines, with one empty line in place of a removed block."""
    kept: list[str] = []
    cut = False
    for line, away in zip(lines, gone, strict=True):
        if away:
            cut = True
        elif cut and not line.strip() and (not kept or not kept[-1].strip()):
            continue
        else:
            kept.append(line)
            cut = cut and not line.strip()
    while cut and kept and not kept[-1].strip():
        kept.pop()
    return kept


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _key(key: str | int) -> str:
    text = str(key)
    return text if _BARE.fullmatch(text) else _quoted(text)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(key)} = {_value(one)}" for key, one in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return repr(value)


def _quoted(text: str) -> str:
    return '"' + text.translate(_ESCAPES) + '"'
