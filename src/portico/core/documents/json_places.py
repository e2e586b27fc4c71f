"""Finds the position of each member of a JSON text, without recursion: files may nest deep."""

import json
import re

from portico.core.documents.jsonc import gap
from portico.core.documents.places import Place, Unreadable
from portico.core.documents.problems import Path

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/|[\[\]{}]', re.DOTALL)
"""All that matters for the end of a container: brackets, and the places where they are text."""
_PLAIN = re.compile(r"[^\s,\]}/]+")


class _Open:
    """An object or array that is still open."""

    def __init__(self, path: Path, start: int, value: int, is_list: bool) -> None:
        self.path, self.start, self.value, self.is_list = path, start, value, is_list
        self.count = 0


def json_places(text: str, along: Path | None = None) -> list[Place]:
    """Every value with its path, containers before their contents.

    With `along`, only those inside the containers on this path, up to its end: files may be large.
    """
    found: list[Place | None] = []
    slots: list[int] = []
    around: list[_Open] = []
    at = gap(text, 0)
    while at < len(text):
        if around and text[at] in "]}":
            done = around.pop()
            found[slots.pop()] = Place(done.path, done.start, done.value, at + 1)
            if along and done.path == along:
                break
            at = gap(text, at + 1)
        elif around and text[at] == ",":
            at = gap(text, at + 1)
        else:
            path, start, at = _named(text, at, around)
            if text[at] in "[{" and along is not None and along[: len(path)] != path:
                end = _container_end(text, at)
                found.append(Place(path, start, at, end))
                at = gap(text, end)
            elif text[at] in "[{":
                around.append(_Open(path, start, at, text[at] == "["))
                slots.append(len(found))
                found.append(None)
                at = gap(text, at + 1)
            else:
                end = _scalar_end(text, at)
                found.append(Place(path, start, at, end))
                at = gap(text, end)
    return [place for place in found if place is not None]


def _named(text: str, at: int, around: list[_Open]) -> tuple[Path, int, int]:
    """The path of the next value, and the positions of its key and of the value itself."""
    if not around:
        return (), at, at
    outer = around[-1]
    if outer.is_list:
        outer.count += 1
        return (*outer.path, outer.count - 1), at, at
    key = _STRING.match(text, at)
    if key is None:
        raise Unreadable
    colon = gap(text, key.end())
    if text[colon] != ":":
        raise Unreadable
    return (*outer.path, str(json.loads(key[0]))), at, gap(text, colon + 1)


def _container_end(text: str, at: int) -> int:
    """The end of the object or array that begins here."""
    depth = 0
    for token in _TOKEN.finditer(text, at):
        if token[0] in ("{", "["):
            depth += 1
        elif token[0] in ("}", "]"):
            depth -= 1
            if not depth:
                return token.end()
    raise Unreadable


def _scalar_end(text: str, at: int) -> int:
    match = (_STRING if text[at] == '"' else _PLAIN).match(text, at)
    if match is None:
        raise Unreadable
    return match.end()
