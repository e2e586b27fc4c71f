"""Finds the position of each key and table of a valid TOML text."""

import re

from portico.core.documents.places import Place, Unreadable
from portico.core.documents.problems import Path

_SPACE = re.compile(r"[ \t]*")
_GAP = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_STRINGS = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}(?!")'
    r"|'''.*?'{3,5}(?!')"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
_PLAIN = re.compile(r"[^,\]}#\r\n]+")


def toml_places(text: str) -> list[Place]:
    """Every header and key, including those in inline tables."""
    return _Scan(text).run()


class _Scan:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._found: list[Place] = []
        self._counts: dict[Path, int] = {}
        """The number of tables so far in each array of tables."""

    def run(self) -> list[Place]:
        table: Path = ()
        self._skip(_GAP)
        while self._at < len(self._text):
            if self._text[self._at] == "[":
                table = self._header()
            else:
                self._pair(table, inline=False)
            self._skip(_GAP)
        return self._found

    def _header(self) -> Path:
        start = self._at
        several = self._text.startswith("[[", start)
        self._at += 2 if several else 1
        self._skip(_SPACE)
        path = self._inside(self._key(), several)
        self._skip(_SPACE)
        self._at += 2 if several else 1
        self._found.append(Place(path, start, start, self._at, header=True))
        return path

    def _inside(self, key: Path, several: bool) -> Path:
        """The path of a header, with its indexes in arrays of tables."""
        path: Path = ()
        for number, part in enumerate(key):
            path = (*path, part)
            last = number == len(key) - 1
            if several and last:
                self._counts[path] = self._counts.get(path, 0) + 1
            if path in self._counts:
                path = (*path, self._counts[path] - 1)
        return path

    def _pair(self, table: Path, *, inline: bool) -> None:
        start = self._at
        path = (*table, *self._key())
        self._skip(_SPACE)
        if self._text[self._at] != "=":
            raise Unreadable
        self._at += 1
        self._skip(_SPACE)
        slot = len(self._found)
        value = self._at
        self._value(path)
        self._found.insert(slot, Place(path, start, value, self._at, inline=inline))

    def _value(self, path: Path) -> None:
        first = self._text[self._at]
        if first in "\"'":
            self._match(_STRINGS)
        elif first == "[":
            self._array(path)
        elif first == "{":
            self._inline(path)
        else:
            plain = self._match(_PLAIN)
            self._at -= len(plain) - len(plain.rstrip())

    def _array(self, path: Path) -> None:
        self._at += 1
        count = 0
        self._skip(_GAP)
        while self._text[self._at] != "]":
            slot, start = len(self._found), self._at
            self._value((*path, count))
            self._found.insert(slot, Place((*path, count), start, start, self._at, inline=True))
            count += 1
            self._skip_comma()
        self._at += 1

    def _inline(self, path: Path) -> None:
        self._at += 1
        self._skip(_GAP)
        while self._text[self._at] != "}":
            self._pair(path, inline=True)
            self._skip_comma()
        self._at += 1

    def _skip_comma(self) -> None:
        self._skip(_GAP)
        if self._text[self._at] == ",":
            self._at += 1
            self._skip(_GAP)

    def _key(self) -> Path:
        """The parts of a dotted key."""
        parts: list[str] = []
        while True:
            if self._text[self._at] in "\"'":
                parts.append(_unquoted(self._match(_STRINGS)))
            else:
                parts.append(self._match(_BARE))
            self._skip(_SPACE)
            if self._text[self._at] != ".":
                return tuple(parts)
            self._at += 1
            self._skip(_SPACE)

    def _skip(self, what: re.Pattern[str]) -> None:
        match = what.match(self._text, self._at)
        assert match is not None  # it also matches the empty string
        self._at = match.end()

    def _match(self, what: re.Pattern[str]) -> str:
        match = what.match(self._text, self._at)
        if match is None:
            raise Unreadable
        self._at = match.end()
        return match[0]


def _unquoted(key: str) -> str:
    if key[0] == "'" or "\\" not in key:
        return key[1:-1]
    import tomllib

    found: str = tomllib.loads(f"key = {key}")["key"]
    return found
