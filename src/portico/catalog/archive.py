"""Histories on disk: one file for each server, whole or not there.

They are state, not cache: nothing can make them again. Nothing here raises.
"""

import os
from collections.abc import Callable
from contextlib import suppress

import msgspec
from msgspec import Struct

from portico.catalog.disk import make_private, write_new
from portico.catalog.document import BAD_JSON
from portico.catalog.history import History, Record
from portico.catalog.identity import upstream_key, user_secret
from portico.config.paths import state_folder
from portico.model.digest import blake2b
from portico.state.report import report as to_operator

FORMAT = 1
MAX_SIZE = 1 << 26
_MOST_FILES = 500
"""Those that were written longest ago go first: a history is written whenever its server runs."""
_SUFFIX = ".history"
_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


class _Header(Struct):
    portico: str
    format: int
    digest: str


_header = msgspec.json.Decoder(_Header).decode
_record = msgspec.json.Decoder(Record).decode


class Archive:
    """The file of one server's history; with several writers, the last one wins."""

    def __init__(
        self, folder: str, key: str, *, report: Callable[[str], None] = to_operator
    ) -> None:
        self._folder = folder
        self._path = os.path.join(folder, f"{key}{_SUFFIX}")
        self._report = report
        self._said = ""
        self._is_newer = False

    def load(self) -> Record | None:
        """The record; None if there is none that can be used."""
        try:
            with os.fdopen(os.open(self._path, _READ), "rb", buffering=0) as file:
                if os.fstat(file.fileno()).st_size > MAX_SIZE:
                    raise OSError("it is too large")
                data = file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._say(f"{self._path} cannot be read: {error.strerror or error}")
            return None
        first, _, rest = data.partition(b"\n")
        try:
            header = _header(first)
            if header.portico != "history" or _digest(header.format, rest) != header.digest:
                raise ValueError("its digest is wrong")
            self._is_newer = header.format > FORMAT
            return None if self._is_newer else _record(rest)
        except BAD_JSON as error:
            self._say(f"{self._path} is damaged ({error}); a new history begins")
            return None

    def save(self, record: Record) -> None:
        """Keep it, unless a newer Portico wrote what is there."""
        if self._is_newer:
            self._say(f"{self._path} was written by a newer Portico; it is left as it is")
            return
        draft = f"{self._path}.{os.urandom(8).hex()}.draft"
        try:
            rest = msgspec.json.encode(record)
            header = msgspec.json.encode(_Header("history", FORMAT, _digest(FORMAT, rest)))
            if not os.path.exists(self._path):
                make_private(self._folder)
                self._make_room()
            write_new(draft, header + b"\n" + rest)
            os.replace(draft, self._path)
        except (OSError, ValueError) as error:
            with suppress(OSError):
                os.unlink(draft)
            self._say(f"{self._path} cannot be written: {getattr(error, 'strerror', '') or error}")

    def _make_room(self) -> None:
        """Remove drafts that were left behind, and the oldest histories beyond the limit."""
        with os.scandir(self._folder) as found:
            entries = sorted((one.stat().st_mtime, one.path) for one in found)
        for _, path in entries[: max(0, len(entries) - _MOST_FILES + 1)]:
            with suppress(OSError):
                os.unlink(path)

    def _say(self, words: str) -> None:
        if self._said != words:
            self._said = words
            self._report(words)


def _digest(format: int, rest: bytes) -> str:
    """Of the header as well: a damaged format number must not look like a newer Portico's."""
    return blake2b(rest, person=f"history {format}".encode()[:16]).hexdigest()


def archive(key: str, report: Callable[[str], None]) -> Archive:
    """A history at the usual place."""
    return Archive(os.path.join(state_folder(), "history"), key, report=report)


def histories(config: str, report: Callable[[str], None]) -> Callable[[str], History]:
    """By name, the history of each server of a config: with other arguments or another token it is
    still the server that goes by this name."""
    secret, path = user_secret(state_folder()), os.path.realpath(config)
    return lambda server: History(
        archive(upstream_key(secret, argv=("history", path, server)), report)
    )
