"""What is known of each upstream, kept on disk: one file each, whole or not there.

Nothing here raises: a catalog that cannot be read or kept is asked for anew.
"""

import errno
import os
import time
from collections.abc import Callable
from contextlib import suppress

from portico.catalog.cache_folder import CacheFolder
from portico.catalog.catalog_file import (
    BAD_JSON,
    CatalogFile,
    encode_catalog,
    offer_of,
    parse_catalog,
)
from portico.model.offer import Offer
from portico.state import files
from portico.state.checksummed import MAX_SIZE, Damaged, Newer
from portico.state.memory import give_back_memory
from portico.state.report import report as to_operator

_KEPT_ASIDE = 3
_DAY_S = 86_400
_UNUSED_S = 90 * _DAY_S
"""A catalog that nobody has read or written for so long is of a server that is no longer there."""
_LARGE = 1_000_000
_OTHERS_WRITE = 0o022


class CatalogStore:
    """The catalogs in one folder, shared with other instances: the last writer wins.

    Keys are safe as file names. One may begin with an owner and a `-`: of each owner only the
    catalog that was saved last is kept. Saving waits for the disk, so keep it off the event loop.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        clock: Callable[[], float] = time.time,
        report: Callable[[str], None] = to_operator,
        disk_cache: CacheFolder | None = None,
    ) -> None:
        """`room` limits the size of the cache."""
        self._folder = os.fspath(folder)
        self._disk_cache = disk_cache
        self._clock = clock
        self._report = report
        self._said: dict[str, str] = {}
        self._swept = False

    def load(self, key: str) -> Offer | None:
        """What was saved last; None if there is nothing that can be used."""
        document = self._find(key)
        if not isinstance(document, CatalogFile):
            return None
        self._mark_used(key)
        if self._disk_cache is not None:
            self._disk_cache.use(self._path(key))
        return offer_of(document)

    def latest(self, key: str) -> Offer | None:
        """What the same owner saved last, whatever its arguments were."""
        owner = key.partition("-")[0]
        names = [os.path.basename(path) for _, path in files.dated(self._folder, ".catalog")]
        found = [name for name in names if name.startswith(f"{owner}-")]
        return self.load(found[-1].removesuffix(".catalog")) if found else None

    def save(self, key: str, offer: Offer) -> bool:
        """True if it is on disk now; if not, what was there still is, and it was reported why."""
        size = self._save(key, offer)
        if size > _LARGE:
            give_back_memory()  # a few times as much was needed to ask for all that
        return bool(size)

    def _save(self, key: str, offer: Offer) -> int:
        """How large it is on disk; 0 if that failed."""
        if isinstance(self._find(key), Newer):
            return 0
        try:
            data = encode_catalog(offer)
            self._write(key, data)
        except (OSError, Damaged, *BAD_JSON) as error:
            self._say(key, f"{self._path(key)} cannot be written: {_reason(error)}")
            return 0
        self._said.pop(key, None)
        if self._disk_cache is not None:
            self._disk_cache.add(self._path(key), len(data))
        return len(data)

    def _path(self, key: str) -> str:
        return os.path.join(self._folder, f"{key}.catalog")

    def _say(self, key: str, text: str) -> None:
        """Report it, unless it was the last thing said of this key."""
        if self._said.get(key) != text:
            self._said[key] = text
            self._report(text)

    def _find(self, key: str) -> CatalogFile | Newer | None:
        """The document; Newer if it must stay as it is; None if there is none of any use."""
        path = self._path(key)
        try:
            data, status = files.read(path, MAX_SIZE)
            if os.name == "posix" and (
                status.st_uid != os.geteuid() or status.st_mode & _OTHERS_WRITE
            ):
                raise OSError(errno.EPERM, "others may have written to it")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self._say(key, f"{path} is not used: {_reason(error)}")
            return None
        try:
            return parse_catalog(data)
        except Damaged as error:
            self._set_aside(key, status, error)
            return None
        except Newer as error:
            self._say(
                key,
                f"{path} is neither used nor changed: {error}; update Portico, or remove "
                "the file to have it made anew",
            )
            return error

    def _set_aside(self, key: str, status: os.stat_result, why: Damaged) -> None:
        path = self._path(key)
        aside = path + time.strftime(".corrupt-%Y%m%dT%H%M%SZ", time.gmtime(self._clock()))
        try:
            now = os.lstat(path)
            if (now.st_ino, now.st_mtime_ns) != (status.st_ino, status.st_mtime_ns):
                return  # another instance has written a new one
            os.rename(path, aside)
            self._say(key, f"{path} is damaged ({why}); it was set aside as {aside}")
            for old in self._aside(key)[:-_KEPT_ASIDE]:
                os.unlink(old)
        except FileNotFoundError:
            pass  # another instance was faster
        except OSError as error:
            self._say(key, f"{path} is damaged ({why}) and cannot be set aside: {_reason(error)}")

    def _aside(self, key: str) -> list[str]:
        """What was set aside, oldest first."""
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
        """Remove what the same owner had with other arguments, or another token."""
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
        """Have its date show that it is in use, to a day."""
        path, now = self._path(key), self._clock()
        with suppress(OSError):
            if now - os.stat(path).st_mtime > _DAY_S:
                os.utime(path, (now, now))

    def _sweep(self) -> None:
        """Remove the drafts of writers that were killed, and what nobody has used for long."""
        if self._swept:
            return
        self._swept = True
        files.remove_old_drafts(self._folder, self._clock())
        for at, path in files.dated(self._folder):
            is_ours = path.endswith(".catalog") or ".catalog.corrupt-" in path
            if is_ours and self._clock() - at > _UNUSED_S:
                with suppress(OSError):
                    os.unlink(path)


def _reason(error: BaseException) -> str:
    return (error.strerror if isinstance(error, OSError) else "") or str(error)
