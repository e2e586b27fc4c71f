"""The cache folder within its limit: the files that were used longest ago go first."""

import os
import threading
from collections.abc import Iterator
from contextlib import suppress

LIMIT_MB = 256
"""By default; large gateways need a few."""
_FOLDERS = ("catalogs", "search")
_ENDINGS = (".catalog", ".index", ".vectors", ".corrupt")


class CacheFolder:
    """What all stored files of this user may take together; files in use stay. Nothing here raises.

    The date of a file is when it was last used.
    """

    def __init__(self, folder: str, limit_mb: int = LIMIT_MB) -> None:
        self.folder = folder
        self._limit = limit_mb * 1_000_000
        self._used: set[str] = set()
        self._added = self._limit
        """Bytes written since the folder was last measured; at the start it never was."""
        self._lock = threading.Lock()

    def use(self, path: str) -> None:
        """This process uses the file."""
        self._used.add(path)

    def release(self, path: str) -> None:
        """It does not use it any more."""
        self._used.discard(path)

    def add(self, path: str, size: int) -> None:
        """A file of so many bytes was written, and is in use; make room for it."""
        self._used.add(path)
        with self._lock:
            self._added += size
            # Measuring takes time, so it is not done for every small file.
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
