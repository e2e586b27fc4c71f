"""Finds the paths that a tool call names, wherever agents put them.

The raw input of a tool has no schema. A value is a path if its key names one, and the keys of a map
are paths if it maps files to their changes.
"""

import os
import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import unquote

from msgspec import Struct

from portico.agents.turns.lenient import fields, items, text

MAX_PATHS = 100
"""The paths of a tool call that are examined."""
_MAX_PATH = 4096
_MAX_DEPTH = 8
_MAX_VALUES = 10_000

_NAMES_A_PATH = re.compile(
    r"(?i:(?:file)?paths?|pathname|file(?:name)?s?|notebook|dirs?|dirname|director(?:y|ies)"
    r"|folders?|cwd|workdir|roots?|uris?)"
)
"""The last word of keys such as `file_path`, `targetFile` or `notebookPath`."""
_MAY_NAME_A_PATH = re.compile(r"(?i:source|src|from|target|to|destination|dest|dst|location)")
"""Keys whose value is a path if it is a single line; `new_source` holds code."""
_NAMES_CHANGES = re.compile(r"(?i:changes|edits|files|patches|diffs|writes)")
"""Keys of maps from files to their changes."""
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_FILE_URL = re.compile(r"(?is:file:(?://[^/?#]*)?(/[^?#]*).*)")
_OTHER_URL = re.compile(r"(?i:[a-z][a-z0-9+.-]+://)")
_PATCH = "*** Begin Patch"
_IN_PATCH = re.compile(r"^\*\*\* (?:(?:Add|Update|Delete) File|Move to): (.+?)\s*$", re.MULTILINE)
"""The lines of a patch, in the format of Codex, that name files."""


class CallPath(Struct, frozen=True):
    """A path of a tool call: as the agent named it, and with links resolved; both absolute."""

    named: str
    real: str


class NamedPaths(Struct, frozen=True):
    """The paths that a tool call names, each once."""

    paths: tuple[str, ...] = ()
    has_more: bool = False
    """True if the call has further or longer paths than are examined."""

    def joined(self, other: "NamedPaths") -> "NamedPaths":
        """Return the paths of both."""
        return _bounded((*self.paths, *other.paths), self.has_more or other.has_more)


def paths_in(call: dict[str, Any]) -> NamedPaths:
    """Return all paths that a tool call names."""
    locations = (fields(item).get("path") for item in items(call.get("locations")))
    contents = map(fields, items(call.get("content")))
    diffs = (item.get("path") for item in contents if item.get("type") == "diff")
    search = _Search()
    search.visit(call.get("rawInput"), "", 0)
    found = (*map(text, locations), *map(text, diffs), *search.found)
    return _bounded(map(plain_path, found), search.is_cut)


def plain_path(path: str) -> str:
    """Return the path of a `file:` URL, and any other path as it is."""
    url = _FILE_URL.fullmatch(path.strip())
    return unquote(url[1]) if url else path


def located(path: str, folder: str) -> CallPath:
    """Return a path that is relative to a folder, resolved."""
    named = os.path.normpath(os.path.join(folder, path))
    try:
        # Before normpath: `link/..` is the parent of the link's target.
        real = os.path.realpath(os.path.join(folder, path))
    except (OSError, ValueError):  # a NUL in the path
        real = named
    return CallPath(named, real)


def all_located(paths: Iterable[str], folder: str) -> Iterator[CallPath]:
    """Return paths resolved; one in a home folder in both readings, as agents differ in it."""
    for path in paths:
        yield located(path, folder)
        at_home = os.path.expanduser(path)
        if at_home != path:
            yield located(at_home, folder)


def _bounded(paths: Iterable[str], has_more: bool) -> NamedPaths:
    unique = list(dict.fromkeys(path for path in paths if path))
    usable = [path for path in unique if len(path) <= _MAX_PATH][:MAX_PATHS]
    return NamedPaths(tuple(usable), has_more or len(usable) < len(unique))


class _Search:
    """A walk through the raw input of a tool, within bounds."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.is_cut = False
        self._values = 0

    def visit(self, value: Any, key: str, depth: int) -> None:
        """Collect the paths of a value, and of everything in it."""
        self._values += 1
        if self._values > _MAX_VALUES or len(self.found) > MAX_PATHS:
            self.is_cut = True
        elif isinstance(value, str):
            self._visit_text(value, key)
        elif not isinstance(value, dict | list):
            return
        elif depth == _MAX_DEPTH:
            self.is_cut = self.is_cut or bool(value)
        elif isinstance(value, list):
            for item in value:
                self.visit(item, key, depth + 1)
        else:
            if _maps_files(value, key):
                self.found += value
            for name, item in value.items():
                self.visit(item, "" if "/" in name else name, depth + 1)

    def _visit_text(self, value: str, key: str) -> None:
        begin = value[:_MAX_PATH].lstrip()
        if begin.startswith(_PATCH):
            self.found += _IN_PATCH.findall(value)
        elif _FILE_URL.fullmatch(begin) or _names_path(key, value):
            self.found.append(value)


def _names_path(key: str, value: str) -> bool:
    """True if a value of this key is a path."""
    if _OTHER_URL.match(value):
        return False
    if _MAY_NAME_A_PATH.fullmatch(key):
        return "\n" not in value and len(value) <= _MAX_PATH
    words = _WORDS.findall(key)
    if words and words[-1].lower() == "name":
        words.pop()  # `file_name`, but not `name`
    return bool(words) and _NAMES_A_PATH.fullmatch(words[-1]) is not None


def _maps_files(value: dict[str, Any], key: str) -> bool:
    """True if the keys of an object are paths."""
    if any("/" in name for name in value):
        return True
    if not _NAMES_CHANGES.fullmatch(key):
        return False
    return all(isinstance(one, dict | list) for one in value.values())
