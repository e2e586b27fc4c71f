"""Downloads one blob into the cache: resumed, bounded by its manifest, compared with its digest."""

import asyncio
import hashlib
import os
from contextlib import suppress
from typing import BinaryIO, Protocol

from portico.core.http1.download import check_length, resumed_at, write_body
from portico.core.http1.errors import Http1Error, InvalidBody
from portico.library.distribution.blob_cache import BlobCache
from portico.library.distribution.distribution_error import (
    DistributionError,
    RegistryUnavailable,
    Untrusted,
)
from portico.library.distribution.manifest import Descriptor
from portico.library.distribution.registry_client import STALL_S, RegistryClient

TRIES = 4
"""Tries in a row that bring nothing."""
PAUSE_S = 0.5
_PIECE = 1024 * 1024


class Progress(Protocol):
    """Shows how far a transfer got."""

    def begin(self, what: str, total: int, done: int) -> None:
        """Begin to show a transfer of `total` bytes."""
        ...

    def advance(self, size: int) -> None:
        """Add some bytes."""
        ...

    def end(self) -> None:
        """End it, finished or not."""
        ...


class NoProgress:
    """Shows nothing."""

    def begin(self, what: str, total: int, done: int) -> None:
        """Show nothing."""

    def advance(self, size: int) -> None:
        """Show nothing."""

    def end(self) -> None:
        """Show nothing."""


class _PartialFile:
    """The part of a blob that has arrived, and its digest."""

    def __init__(self, file: BinaryIO) -> None:
        """Hash what a former download left."""
        self.file = file
        self.size = 0
        self._digest = hashlib.sha256()
        while piece := file.read(_PIECE):
            self.update(piece)

    @property
    def digest(self) -> str:
        return f"sha256:{self._digest.hexdigest()}"

    def update(self, data: bytes, /) -> None:
        """Count a piece that is in the file."""
        self._digest.update(data)
        self.size += len(data)

    def restart(self) -> None:
        self.file.seek(0)
        self.file.truncate()
        self._digest, self.size = hashlib.sha256(), 0


class _Shown:
    """Shows each piece that arrives."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def update(self, data: bytes, /) -> None:
        self._progress.advance(len(data))


class BlobDownload:
    """The download of one blob."""

    def __init__(
        self,
        client: RegistryClient,
        cache: BlobCache,
        name: str,
        layer: Descriptor,
        progress: Progress,
    ) -> None:
        self._client = client
        self._cache = cache
        self._name = name
        self._layer = layer
        self._progress = progress

    async def run(self) -> str:
        """Return the path of the blob; raises DistributionError.

        A download by another process is awaited; an incomplete download is resumed.
        """
        digest = self._layer.digest
        async with self._cache.lock(digest):
            if found := self._cache.find(digest):
                return found
            path = self._cache.partial(digest)
            try:
                with _open(path) as file:
                    await self._complete(_PartialFile(file))
            except Untrusted:
                with suppress(OSError):
                    os.unlink(path)
                raise
            except OSError as error:
                what = f"{path}: cannot be written: {error.strerror or error}"
                raise DistributionError(f"{what}; make room and pull again") from None
            return self._cache.keep(digest)

    async def _complete(self, part: _PartialFile) -> None:
        """Download the rest, and compare the digest of all; raises Untrusted."""
        if part.size > self._layer.size:
            part.restart()
        was_resumed = part.size > 0
        self._progress.begin(self._name, self._layer.size, part.size)
        try:
            await self._fill(part)
            if part.digest != self._layer.digest and was_resumed:
                part.restart()  # the old part may have been the wrong one
                await self._fill(part)
        except InvalidBody as error:
            what = f"{self._client.host} {error}, for a blob of {self._name}"
            raise Untrusted(f"{what}; nothing of it was used") from None
        finally:
            self._progress.end()
        if part.digest != self._layer.digest:
            what = f"{self._client.host} sent a blob of {self._name} with the digest {part.digest}"
            raise Untrusted(f"{what}, not {self._layer.digest}; nothing of it was used")

    async def _fill(self, part: _PartialFile) -> None:
        """Download until the size is right, over as many connections as it takes."""
        fruitless = 0
        while part.size < self._layer.size:
            before = part.size
            try:
                await self._request(part)
            except RegistryUnavailable as error:
                fruitless = 0 if part.size > before else fruitless + 1
                if fruitless >= TRIES:
                    got = f"{part.size:,} of {self._layer.size:,} bytes are here"
                    raise RegistryUnavailable(f"{error}; {got}: pull again to continue") from None
                await asyncio.sleep(PAUSE_S * fruitless)

    async def _request(self, part: _PartialFile) -> None:
        response = await self._client.blob(self._name, self._layer.digest, part.size)
        try:
            at = resumed_at(response)
            if response.status == 416 or (at == 0 and part.size):
                part.restart()
            if response.status == 416:
                raise InvalidBody("does not have the rest of it")
            if at != part.size:
                raise InvalidBody("sent another part than the one requested")
            left = self._layer.size - part.size
            check_length(response, left)
            await write_body(response, part.file, left, STALL_S, part, _Shown(self._progress))
        except InvalidBody:
            raise
        except Http1Error as error:
            raise RegistryUnavailable(f"{self._client.host} {error}") from None
        finally:
            response.close()


def _open(path: str) -> BinaryIO:
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    return os.fdopen(os.open(path, flags, 0o600), "r+b")
