"""Uploads one blob in chunks; an upload that broke off is taken up where the registry has it."""

import asyncio
import hashlib
import os
from contextlib import suppress
from typing import BinaryIO

from portico.library.distribution.blob_cache import BlobCache
from portico.library.distribution.blob_download import Progress
from portico.library.distribution.distribution_error import DistributionError, RegistryUnavailable
from portico.library.distribution.registry_client import RegistryClient

CHUNK = 8 * 1024 * 1024
TRIES = 4
_UPLOAD = "upload"
PAUSE_S = 0.5


class BlobUpload:
    """The upload of one file to one repository."""

    def __init__(
        self,
        client: RegistryClient,
        cache: BlobCache,
        name: str,
        progress: Progress,
        chunk: int = CHUNK,
    ) -> None:
        self._client = client
        self._cache = cache
        self._name = name
        self._progress = progress
        self._chunk = chunk

    async def run(self, file: BinaryIO, size: int, digest: str) -> bool:
        """Upload a file unless the registry has it; True if it was sent. Raises
        DistributionError."""
        if await self._client.has_blob(self._name, digest):
            return False
        note = self._note(digest)
        fruitless, best = 0, -1
        self._progress.begin(self._name, size, 0)
        try:
            while True:
                done = [0]
                try:
                    await self._once(file, size, digest, note, done)
                    return True
                except RegistryUnavailable as error:
                    fruitless = 0 if done[0] > best else fruitless + 1
                    best = max(best, done[0])
                    if fruitless >= TRIES:
                        raise RegistryUnavailable(f"{error}; push again to continue") from None
                    await asyncio.sleep(PAUSE_S * (fruitless + 1))
        finally:
            self._progress.end()

    async def _once(
        self, file: BinaryIO, size: int, digest: str, note: str, done: list[int]
    ) -> None:
        url, at = await self._begin(size, note)
        done[0] = at
        self._progress.advance(at)
        while at < size:
            part = min(self._chunk, size - at)
            url = await self._client.upload(self._name, url, file, at, part)
            at = done[0] = at + part
            self._progress.advance(part)
            self._cache.save_note(note, _UPLOAD, url.encode())
        try:
            await self._client.finish_upload(self._name, url, digest)
        except RegistryUnavailable:
            raise
        except DistributionError:
            self._cache.save_note(note, _UPLOAD, None)  # the next try starts again
            raise
        self._cache.save_note(note, _UPLOAD, None)

    async def _begin(self, size: int, note: str) -> tuple[str, int]:
        """Return the URL of an upload and how far it is: the one that broke off, else a new one."""
        kept = self._cache.note(note, _UPLOAD)
        if kept is not None:
            with suppress(DistributionError, UnicodeDecodeError):
                found = await self._client.upload_progress(self._name, kept.decode())
                if found is not None and 0 < found[0] <= size:
                    return found[1], found[0]
            self._cache.save_note(note, _UPLOAD, None)
        return await self._client.begin_upload(self._name), 0

    def _note(self, digest: str) -> str:
        """Return where the URL of the upload is kept: one for each blob and repository."""
        what = f"{self._client.host}/{self._name} {digest}"
        return f"sha256:{hashlib.sha256(what.encode()).hexdigest()}"


def size_of(file: BinaryIO) -> int:
    """Return the size of an open file."""
    return os.fstat(file.fileno()).st_size
