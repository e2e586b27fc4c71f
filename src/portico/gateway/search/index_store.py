"""Indexes on disk, one file per version of the catalog; a damaged one is rebuilt."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b

from portico.core.catalog.cache_folder import CacheFolder
from portico.core.state import checksummed, files
from portico.gateway.search.index import FORMAT, ToolIndex

KEPT = 3
_ENDING = ".index"


class IndexStore:
    """The stored indexes in one folder, shared by processes. Nothing here raises."""

    def __init__(
        self, folder: str, report: Callable[[str], None], disk_cache: CacheFolder | None = None
    ) -> None:
        self._folder = folder
        self._disk_cache = disk_cache
        self._used = ""
        self._report = report

    def load(self, version: str) -> ToolIndex | None:
        """Return the index of this version; None if it has to be built."""
        path = self._path(version)
        try:
            data = checksummed.read(path, "index", FORMAT)
            index = None if data is None else ToolIndex.from_bytes(data)
        except (checksummed.Damaged, checksummed.Newer, OSError) as error:
            self._report(f"{path} is ignored and the index is rebuilt: {error}")
            return None
        if index is not None:
            with suppress(OSError):
                os.utime(path)  # the least recently used is removed first
            self._use(path)
        return index

    def save(self, version: str, index: ToolIndex) -> None:
        """Save it, and remove all but the newest few."""
        path = self._path(version)
        data = index.to_bytes()
        try:
            files.make_private(self._folder)
            checksummed.write(path, "index", FORMAT, data)
        except OSError as error:
            self._report(f"{path} cannot be written: {error.strerror}")
            return
        files.keep_newest(KEPT, self._folder, _ENDING)
        files.remove_old_drafts(self._folder, time.time())
        self._use(path)
        if self._disk_cache is not None:
            self._disk_cache.add(path, len(data))

    def _use(self, path: str) -> None:
        """Mark the one index that is in use."""
        if self._disk_cache is not None:
            self._disk_cache.release(self._used)
            self._disk_cache.use(path)
        self._used = path

    def _path(self, version: str) -> str:
        # Another format has other files, so that two versions of Portico do not rebuild in turn.
        name = blake2b(f"{FORMAT} {version}".encode(), digest_size=16).hexdigest()
        return os.path.join(self._folder, f"{name}{_ENDING}")
