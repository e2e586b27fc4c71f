"""Blobs by digest in the cache folder: shared by processes, whole or absent, pruned by age.

Nothing waits for the disk: a blob that a crash of the machine damages is noticed when it is used,
since its digest is compared then, and is pulled again.
"""

import asyncio
import fcntl
import hashlib
import os
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from portico.core.state import files
from portico.library.distribution.distribution_error import DistributionError

KEEP_S = 90 * 24 * 3600.0
"""A blob that was not used for so long is removed."""
LOCK_S = 3600.0
_POLL_S = 0.05
_PIECE = 1024 * 1024


class BlobCache:
    """The cache of one user."""

    def __init__(self, cache_folder: str) -> None:
        self.folder = os.path.join(cache_folder, "registry")
        self._blobs = os.path.join(self.folder, "blobs")
        self._partial = os.path.join(self.folder, "partial")
        self._notes = os.path.join(self.folder, "notes")
        self._files = os.path.join(self.folder, "files")

    def find(self, digest: str) -> str:
        """Return the path of a blob whose content has its digest; empty if there is none.

        A damaged blob is removed.
        """
        path = self._path(self._blobs, digest)
        return path if self._is_good(path, digest) else ""

    def read(self, digest: str, max_size: int) -> bytes | None:
        """Return a small blob, compared with its digest; None if there is none."""
        path = self.find(digest)
        if not path:
            return None
        with suppress(OSError):
            data, _ = files.read(path, max_size)
            return data if f"sha256:{hashlib.sha256(data).hexdigest()}" == digest else None
        return None

    def add(self, digest: str, data: bytes) -> None:
        """Store a small blob whose digest was compared."""
        self._write(self._path(self._blobs, digest), data)

    def partial(self, digest: str) -> str:
        """Return the path of a download in progress; hold its lock."""
        try:
            files.make_private(self._partial)
        except OSError as error:
            raise self._unusable(error) from None
        return self._path(self._partial, digest)

    def keep(self, digest: str) -> str:
        """Make a download a blob: its content was compared with the digest."""
        path = self._path(self._blobs, digest)
        try:
            files.make_private(self._blobs)
            os.replace(self._path(self._partial, digest), path)
        except OSError as error:
            raise self._unusable(error) from None
        return path

    def named(self, digest: str, name: str, owner: str = "") -> str:
        """Return a path of a blob that has this name, for programs that look at a file's name.

        The blob was found before: its digest is compared. `owner` is the digest of a manifest that
        puts something beside it.
        """
        blob, folder = self._path(self._blobs, digest), self._path(self._files, owner or digest)
        path = os.path.join(folder, name)
        try:
            files.make_private(folder)
            if not (os.path.exists(path) and os.path.samefile(path, blob)):
                made = f"{path}.{os.urandom(8).hex()}.draft"
                os.link(blob, made)
                os.replace(made, path)
            os.utime(folder)
        except OSError as error:
            raise self._unusable(error) from None
        return path

    def put_beside(self, path: str, ending: str, data: bytes) -> None:
        """Write a file beside one that has a name, unless it is there."""
        beside = f"{path}{ending}"
        with suppress(OSError):
            if files.read(beside, len(data))[0] == data:
                return
        self._write(beside, data)

    def note(self, digest: str, kind: str) -> bytes | None:
        """Return what is kept beside a digest, such as its signatures; None if there is nothing."""
        with suppress(OSError):
            return files.read(self._path(self._notes, digest, kind), _PIECE * 8)[0]
        return None

    def save_note(self, digest: str, kind: str, data: bytes | None) -> None:
        """Keep something beside a digest; None removes it."""
        path = self._path(self._notes, digest, kind)
        if data is None:
            with suppress(FileNotFoundError, NotADirectoryError):
                os.unlink(path)
        else:
            self._write(path, data)

    @asynccontextmanager
    async def lock(self, digest: str) -> AsyncGenerator[None, None]:
        """Hold the lock of a digest, over all processes; raises DistributionError."""
        path = f"{self.partial(digest)}.lock"
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise self._unusable(error) from None
        try:
            async with asyncio.timeout(LOCK_S):
                while not _try_lock(handle):  # noqa: ASYNC110  (a lock of the system has no event)
                    await asyncio.sleep(_POLL_S)
            yield
        except TimeoutError:
            raise DistributionError(f"another process has held {path} for an hour") from None
        finally:
            os.close(handle)

    def prune(self) -> None:
        """Remove what was not used for long; a file in use is used again soon."""
        before = time.time() - KEEP_S
        for folder in (self._blobs, self._partial, self._notes):
            for at, path in files.dated(folder):
                if at < before:
                    with suppress(OSError):
                        os.unlink(path)
        for at, folder in files.dated(self._files):
            if at < before:
                for _, path in files.dated(folder):
                    with suppress(OSError):
                        os.unlink(path)
                with suppress(OSError):
                    os.rmdir(folder)

    def _path(self, folder: str, digest: str, kind: str = "") -> str:
        name = digest.removeprefix("sha256:")
        return os.path.join(folder, f"{name}.{kind}" if kind else name)

    def _write(self, path: str, data: bytes) -> None:
        try:
            files.make_private(os.path.dirname(path))
            made = f"{path}.{os.urandom(8).hex()}.draft"
            with os.fdopen(
                os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb"
            ) as file:
                file.write(data)
            os.replace(made, path)
        except OSError as error:
            raise self._unusable(error) from None

    def _is_good(self, path: str, digest: str) -> bool:
        try:
            found = hash_file(path)
        except OSError:
            return False
        if found == digest:
            with suppress(OSError):
                os.utime(path)
            return True
        with suppress(OSError):
            os.unlink(path)
        return False

    def _unusable(self, error: OSError) -> DistributionError:
        why = error.strerror or str(error)
        return DistributionError(f"the cache {self.folder} cannot be used: {why}")


def hash_file(path: str) -> str:
    """Return the digest of a regular file; raises OSError."""
    digest = hashlib.sha256()
    with os.fdopen(os.open(path, files.READ), "rb", buffering=0) as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return f"sha256:{digest.hexdigest()}"


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
