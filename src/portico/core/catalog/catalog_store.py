"""The catalogs of upstreams on disk: one file each, written atomically.

Nothing here raises: a catalog that cannot be read is fetched again.
"""

import errno
import os
import time
from collections.abc import Callable
from contextlib import suppress

from portico.core.catalog import catalog_file
from portico.core.catalog.cache_folder import CacheFolder
from portico.core.catalog.catalog_file import BAD_JSON, CatalogFile
from portico.core.model.offer import Offer
from portico.core.state import files
from portico.core.state.checksummed import MAX_SIZE, Damaged, Newer
from portico.core.state.memory import give_back_memory
from portico.core.state.report import report as to_operator

_MAX_SET_ASIDE = 3
_DAY_S = 86_400
_MAX_UNUSED_S = 90 * _DAY_S
"""Catalogs that were not used for this long belong to servers that were removed."""
_LARGE_BYTES = 1_000_000
_WRITABLE_BY_OTHERS = 0o022


class CatalogStore:
    """The catalogs in one folder, shared with other instances: the last writer wins.

    Keys are safe as file names. A key may begin with an owner and a `-`: of each owner only the
    latest catalog is kept. Saving blocks on the disk, so keep it off the event loop.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        clock: Callable[[], float] = time.time,
        report: Callable[[str], None] = to_operator,
        disk_cache: CacheFolder | None = None,
    ) -> None:
        """`disk_cache` limits the size of the folder."""
        self._folder = os.fspath(folder)
        self._disk_cache = disk_cache
        self._clock = clock
        self._report = report
        self._last_reports: dict[str, str] = {}
        self._has_swept = False

    def load(self, key: str) -> Offer | None:
        """Return the saved offer, or None if there is no usable one."""
        document = self._read(key)
        if not isinstance(document, CatalogFile):
            return None
        self._mark_used(key)
        if self._disk_cache is not None:
            self._disk_cache.use(self._path(key))
        return catalog_file.offer_of(document)

    def latest(self, key: str) -> Offer | None:
        """Return the offer that the same owner saved last, with any arguments."""
        owner = key.partition("-")[0]
        names = [os.path.basename(path) for _, path in files.dated(self._folder, ".catalog")]
        found = [name for name in names if name.startswith(f"{owner}-")]
        return self.load(found[-1].removesuffix(".catalog")) if found else None

    def save(self, key: str, offer: Offer) -> bool:
        """Save an offer; if that fails, keep the old file, report why and return False."""
        size = self._save(key, offer)
        if size > _LARGE_BYTES:
            give_back_memory()  # fetching and encoding took several times its size
        return bool(size)

    def _save(self, key: str, offer: Offer) -> int:
        """Return the size on disk; 0 if saving failed."""
        if isinstance(self._read(key), Newer):
            return 0
        try:
            data = catalog_file.encode_catalog(offer)
            self._write(key, data)
        except (OSError, Damaged, *BAD_JSON) as error:
            self._warn(key, f"{self._path(key)} cannot be written: {_reason(error)}")
            return 0
        self._last_reports.pop(key, None)
        if self._disk_cache is not None:
            self._disk_cache.add(self._path(key), len(data))
        return len(data)

    def _path(self, key: str) -> str:
        return os.path.join(self._folder, f"{key}.catalog")

    def _warn(self, key: str, text: str) -> None:
        """Report a message, unless it repeats the last one for this key."""
        if self._last_reports.get(key) != text:
            self._last_reports[key] = text
            self._report(text)

    def _read(self, key: str) -> CatalogFile | Newer | None:
        """Return the file's document; Newer if it must not be changed; None if it is not usable."""
        path = self._path(key)
        try:
            data, status = files.read(path, MAX_SIZE)
            if os.name == "posix" and (
                status.st_uid != os.geteuid() or status.st_mode & _WRITABLE_BY_OTHERS
            ):
                raise OSError(errno.EPERM, "other users can write to it")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self._warn(key, f"{path} is not used: {_reason(error)}")
            return None
        try:
            return catalog_file.parse_catalog(data)
        except Damaged as error:
            self._set_aside(key, status, error)
            return None
        except Newer as error:
            self._warn(key, f"{path} is not used: {error}; update Portico, or delete the file")
            return error

    def _set_aside(self, key: str, status: os.stat_result, why: Damaged) -> None:
        path = self._path(key)
        aside = path + time.strftime(".corrupt-%Y%m%dT%H%M%SZ", time.gmtime(self._clock()))
        try:
            now = os.lstat(path)
            if (now.st_ino, now.st_mtime_ns) != (status.st_ino, status.st_mtime_ns):
                return  # another instance has written a new one
            os.rename(path, aside)
            self._warn(key, f"{path} is damaged: {why}; renamed to {aside}")
            for old in self._paths_set_aside(key)[:-_MAX_SET_ASIDE]:
                os.unlink(old)
        except FileNotFoundError:
            pass  # another instance was faster
        except OSError as error:
            self._warn(key, f"{path} is damaged: {why}; it cannot be renamed: {_reason(error)}")

    def _paths_set_aside(self, key: str) -> list[str]:
        """Return the paths of damaged files, oldest first."""
        start = f"{key}.catalog.corrupt-"
        names = sorted(name for name in os.listdir(self._folder) if name.startswith(start))
        return [os.path.join(self._folder, name) for name in names]

    def _write(self, key: str, data: bytes) -> None:
        files.make_private(self._folder)
        self._sweep()
        is_new = not os.path.exists(self._path(key))
        files.replace(self._path(key), data)
        files.sync_folder(self._folder)
        if is_new:
            self._remove_superseded(key)

    def _remove_superseded(self, key: str) -> None:
        """Remove the owner's catalogs of other arguments or tokens."""
        owner, middle, _ = key.partition("-")
        if not middle:
            return
        with suppress(OSError), os.scandir(self._folder) as entries:
            for entry in entries:
                name = entry.name
                if name.startswith(owner + middle) and not name.startswith(f"{key}."):
                    with suppress(OSError):
                        os.unlink(entry.path)
                    if self._disk_cache is not None:
                        self._disk_cache.release(entry.path)

    def _mark_used(self, key: str) -> None:
        """Set the date of the file to now, at most once a day."""
        path, now = self._path(key), self._clock()
        with suppress(OSError):
            if now - os.stat(path).st_mtime > _DAY_S:
                os.utime(path, (now, now))

    def _sweep(self) -> None:
        """Remove the drafts of killed writers, and catalogs that were not used for long."""
        if self._has_swept:
            return
        self._has_swept = True
        files.remove_old_drafts(self._folder, self._clock())
        for at, path in files.dated(self._folder):
            is_ours = path.endswith(".catalog") or ".catalog.corrupt-" in path
            if is_ours and self._clock() - at > _MAX_UNUSED_S:
                with suppress(OSError):
                    os.unlink(path)


def _reason(error: BaseException) -> str:
    return (error.strerror if isinstance(error, OSError) else "") or str(error)
