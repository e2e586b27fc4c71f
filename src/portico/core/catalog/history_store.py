"""Histories on disk: one file for each server, written atomically.

They are state, not a cache: a lost history cannot be rebuilt. Nothing here raises.
"""

import os
from collections.abc import Callable
from hashlib import blake2b

import msgspec

from portico.core.catalog.catalog_file import BAD_JSON
from portico.core.catalog.history import History, HistoryRecord
from portico.core.catalog.upstream_key import upstream_key
from portico.core.config.paths import state_folder
from portico.core.state import checksummed
from portico.core.state.files import keep_newest, make_private
from portico.core.state.report import report as to_operator
from portico.core.state.user_secret import user_secret

FORMAT = 2
_OLDER: checksummed.Older = {1: lambda rest: blake2b(rest, person=b"history 1").hexdigest()}
_MAX_FILES = 500
"""Old files are removed first: a history is written whenever its server runs."""
_SUFFIX = ".history"
_record = msgspec.json.Decoder(HistoryRecord).decode


class HistoryStore:
    """The file of one server's history; with several writers, the last one wins."""

    def __init__(
        self, folder: str, key: str, *, report: Callable[[str], None] = to_operator
    ) -> None:
        self._folder = folder
        self._path = os.path.join(folder, f"{key}{_SUFFIX}")
        self._report = report
        self._last_report = ""
        self._may_write = True

    def load(self) -> HistoryRecord | None:
        """Return the record, or None if there is no usable one."""
        try:
            data = checksummed.read(self._path, "history", FORMAT, _OLDER)
            return None if data is None else _record(data)
        except OSError as error:
            self._may_write = False
            self._warn(f"{self._path} cannot be read: {error.strerror or error}; the file is kept")
        except checksummed.Newer as error:
            self._may_write = False
            self._warn(f"{self._path} is not used: {error}; update Portico")
        except (checksummed.Damaged, *BAD_JSON) as error:
            self._warn(f"{self._path} is damaged: {error}; starting a new history")
        return None

    def save(self, record: HistoryRecord) -> None:
        """Save the record, unless the file could not be read: its history would be lost."""
        if not self._may_write:
            return
        try:
            if not os.path.exists(self._path):
                make_private(self._folder)
                keep_newest(_MAX_FILES - 1, self._folder)
            checksummed.write(self._path, "history", FORMAT, msgspec.json.encode(record))
        except (OSError, ValueError) as error:
            self._warn(f"{self._path} cannot be written: {getattr(error, 'strerror', '') or error}")

    def _warn(self, words: str) -> None:
        if self._last_report != words:
            self._last_report = words
            self._report(words)


def default_history_store(key: str, report: Callable[[str], None]) -> HistoryStore:
    """Return the store of a history in the state folder."""
    return HistoryStore(os.path.join(state_folder(), "history"), key, report=report)


def histories(config: str, report: Callable[[str], None]) -> Callable[[str], History]:
    """Return a function from a server's name in a config to its history, which does not depend on
    the server's arguments or token."""
    secret, path = user_secret(state_folder()), os.path.realpath(config)
    return lambda server: History(
        default_history_store(upstream_key(secret, argv=("history", path, server)), report)
    )
