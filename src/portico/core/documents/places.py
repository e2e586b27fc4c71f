"""Positions of keys and values in a file, for edits and for the line numbers of messages."""

import re
from bisect import bisect_left

from msgspec import Struct

from portico.core.documents.problems import Path


class Place(Struct, frozen=True):
    """One key with its value, or the header of a table."""

    path: Path
    start: int
    """The offset of the key, or of the header's bracket."""
    value: int
    """The offset of the value."""
    end: int
    """The end of the value or header."""
    header: bool = False
    inline: bool = False
    """It is inside another value."""


class Unreadable(Exception):
    """The text differs from what its parser accepted, so its positions are unknown."""


def places(text: str, kind: str) -> list[Place]:
    """Every key and header of a valid text, in order."""
    if kind == "json":
        from portico.core.documents.json_places import json_places

        return json_places(text)
    from portico.core.documents.toml_places import toml_places

    return toml_places(text)


class LineIndex:
    """Finds the line of a key, or of the closest table around it."""

    def __init__(self, text: str, kind: str) -> None:
        self._ends = [match.start() for match in re.finditer("\n", text)]
        self._starts: dict[Path, int] = {}
        try:
            found = places(text, kind)
        except (Unreadable, IndexError, RecursionError):
            found = []
        for place in found:
            for length in range(len(place.path) + 1):
                self._starts.setdefault(place.path[:length], place.start)

    def line(self, path: Path) -> int:
        """The line of a path, counted from 1."""
        while path and path not in self._starts:
            path = path[:-1]
        start = self._starts.get(path, 0) if path else 0
        return bisect_left(self._ends, start) + 1


def last_duplicates(found: list[Place]) -> list[Place]:
    """The places whose key occurred before."""
    seen: set[Path] = set()
    duplicates = []
    for place in found:
        if place.path in seen and place.path and isinstance(place.path[-1], str):
            duplicates.append(place)
        seen.add(place.path)
    return duplicates
