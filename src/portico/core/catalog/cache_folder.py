"""The cache folder and its size limit: the least recently used files are removed first."""

import os
import threading
from collections.abc import Iterator
from contextlib import suppress

from portico.core.model.defaults import CACHE_MB

_FOLDERS = ("catalogs", "search")
_ENDINGS = (".catalog", ".index", ".vectors", ".corrupt")


class CacheFolder:
    """Keep the cache files of this user within one limit, except those in use. Nothing here raises.

    The date of a file is the time of its last use.
    """

    def __init__(self, folder: str, limit_mb: int = CACHE_MB) -> None:
        self.folder = folder
        self._limit = limit_mb * 1_000_000
        self._used: set[str] = set()
        self._added = self._limit
        """Bytes written since the folder was last measured; the first write measures it."""
        self._lock = threading.Lock()

    def use(self, path: str) -> None:
        """Mark a file as in use by this process."""
        self._used.add(path)

    def release(self, path: str) -> None:
        """Mark a file as no longer in use."""
        self._used.discard(path)

    def add(self, path: str, size: int) -> None:
        """Mark a written file as in use, and remove old files if the folder is over its limit."""
        self._used.add(path)
        with self._lock:
            self._added += size
            # Measuring is slow, so small files do not trigger it one by one.
            if self._added * 64 < self._limit:
                return
            self._added = 0
            self._trim()

    def _trim(self) -> None:
        files = sorted(self._files())
        total = sum(size for _, size, _ in files)
        for _, size, path in files:
            if total <= self._limit:
                return
            if path not in self._used:
                with suppress(OSError):
                    os.unlink(path)
                total -= size

    def _files(self) -> Iterator[tuple[float, int, str]]:
        for name in _FOLDERS:
            with suppress(OSError), os.scandir(os.path.join(self.folder, name)) as entries:
                for entry in entries:
                    if entry.name.endswith(_ENDINGS) or ".catalog.corrupt-" in entry.name:
                        with suppress(OSError):
                            status = entry.stat(follow_symlinks=False)
                            yield status.st_mtime, status.st_size, entry.path
