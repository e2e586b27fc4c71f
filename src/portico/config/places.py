"""Where in a file things stand: for messages that name a line, and for edits."""

import re
from bisect import bisect_left

from msgspec import Struct

from portico.config.problems import Path


class Place(Struct, frozen=True):
    """One key with its value, or the header of a table."""

    path: Path
    start: int
    """Where the key begins, or the header's bracket."""
    value: int
    """Where the value begins."""
    end: int
    """Where the value ends, or the header."""
    header: bool = False
    inline: bool = False
    """It stands inside another value."""


class Unreadable(Exception):
    """The text is not what its parser took it for, so nothing is known of places in it."""


def places(text: str, kind: str) -> list[Place]:
    """All that has a key, in order; the text must be one that parses."""
    if kind == "json":
        from portico.config.json_places import json_places

        return json_places(text)
    from portico.config.toml_places import toml_places

    return toml_places(text)


class LineIndex:
    """Finds the line of a key, or of the nearest thing around it."""

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
        """Counted from 1."""
        while path and path not in self._starts:
            path = path[:-1]
        start = self._starts.get(path, 0) if path else 0
        return bisect_left(self._ends, start) + 1


def last_duplicates(found: list[Place]) -> list[Place]:
    """Those whose key was there before."""
    seen: set[Path] = set()
    duplicates = []
    for place in found:
        if place.path in seen and place.path and isinstance(place.path[-1], str):
            duplicates.append(place)
        seen.add(place.path)
    return duplicates
