"""Histories on disk: one file for each server, whole or not there.

They are state, not cache: nothing can make them again. Nothing here raises.
"""

import os
from collections.abc import Callable

import msgspec

from portico.catalog.catalog_file import BAD_JSON
from portico.catalog.history import History, HistoryRecord
from portico.catalog.upstream_key import upstream_key, user_secret
from portico.config.paths import state_folder
from portico.model.digest import blake2b
from portico.state import checksummed
from portico.state.files import keep_newest, make_private
from portico.state.report import report as to_operator

FORMAT = 2
_OLDER: checksummed.Older = {1: lambda rest: blake2b(rest, person=b"history 1").hexdigest()}
_MAX_FILES = 500
"""Those that were written longest ago go first: a history is written whenever its server runs."""
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
        self._said = ""
        self._may_write = True

    def load(self) -> HistoryRecord | None:
        """The record; None if there is none that can be used."""
        try:
            data = checksummed.read(self._path, "history", FORMAT, _OLDER)
            return None if data is None else _record(data)
        except OSError as error:
            self._may_write = False
            self._say(f"{self._path} cannot be read: {error.strerror or error}; it is not changed")
        except checksummed.Newer as error:
            self._may_write = False
            self._say(f"{self._path} is not changed: {error}; update Portico")
        except (checksummed.Damaged, *BAD_JSON) as error:
            self._say(f"{self._path} is damaged ({error}); a new history begins")
        return None

    def save(self, record: HistoryRecord) -> None:
        """Keep it, unless what is there could not be read: nothing could make it again."""
        if not self._may_write:
            return
        try:
            if not os.path.exists(self._path):
                make_private(self._folder)
                keep_newest(_MAX_FILES - 1, self._folder)
            checksummed.write(self._path, "history", FORMAT, msgspec.json.encode(record))
        except (OSError, ValueError) as error:
            self._say(f"{self._path} cannot be written: {getattr(error, 'strerror', '') or error}")

    def _say(self, words: str) -> None:
        if self._said != words:
            self._said = words
            self._report(words)


def default_history_store(key: str, report: Callable[[str], None]) -> HistoryStore:
    """A history at the usual place."""
    return HistoryStore(os.path.join(state_folder(), "history"), key, report=report)


def histories(config: str, report: Callable[[str], None]) -> Callable[[str], History]:
    """By name, the history of each server of a config: with other arguments or another token it is
    still the server that goes by this name."""
    secret, path = user_secret(state_folder()), os.path.realpath(config)
    return lambda server: History(
        default_history_store(upstream_key(secret, argv=("history", path, server)), report)
    )
