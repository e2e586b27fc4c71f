"""One user of registries in the process of the test: a config, a lock file and a cache."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization as form

from portico.core.config.read import read
from portico.library.distribution.blob_cache import BlobCache
from portico.library.distribution.blob_download import NoProgress
from portico.library.distribution.lock_file import LockFile
from portico.library.distribution.pull import Pulled, Puller
from portico.library.distribution.push import Pushed, Pusher
from portico.library.distribution.reference import parse_reference
from tests.library.distribution.rigs import Home

WAIT_S = 60.0


class User:
    """Pulls and pushes with the objects of the commands."""

    def __init__(self, folder: Path, host: str, patch: pytest.MonkeyPatch) -> None:
        self.home = Home(folder).write(host)
        self.host = host
        self.cache = BlobCache(str(folder / "home" / "cache"))
        self.lock = LockFile(str(self.home.config))
        patch.setenv("DOCKER_CONFIG", str(folder / "docker"))
        patch.setenv("PORTICO_HOME", str(folder / "home"))

    def trust(self, table: str = "") -> None:
        """Replace the table [trust], by default with one that allows nothing."""
        self.home.write(self.host, trust=table or "[trust]\nunsigned = []\n")

    def trust_key(self, key: Any, signs_for: str = "r0", more: str = "") -> None:
        """Trust one public key."""
        path = self.home.folder / "mine.pub"
        path.write_bytes(
            key.public_key().public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)
        )
        self.trust(f'[trust.keys.mine]\nfile = "{path}"\nsigns_for = ["{signs_for}"]\n{more}')

    def pull(self, name: str, *, update: bool = False) -> Pulled:
        """Pull `NAME:TAG` or `NAME@DIGEST` of the first registry."""
        return asyncio.run(self.pulling(name, update=update))

    async def pulling(self, name: str, *, update: bool = False) -> Pulled:
        async with asyncio.timeout(WAIT_S):
            return await self._puller().pull(self._reference(name), update=update)

    def find(self, name: str) -> Pulled:
        """Find it without the network."""
        return self._puller().find(self._reference(name))

    def push(self, path: Path, name: str, key: Any = None, chunk: int = 100_000) -> Pushed:
        """Push a file."""
        publishing = read(self.home.config).publishing
        pusher = Pusher(publishing, self.cache, NoProgress(), chunk)
        return asyncio.run(pusher.push(str(path), self._reference(name), {}, key))

    def leftovers(self) -> list[str]:
        """Return the parts of downloads in the cache."""
        folder = Path(self.cache.folder) / "partial"
        return [one.name for one in folder.iterdir() if one.suffix != ".lock"]

    def _reference(self, name: str) -> Any:
        return parse_reference(f"oci://{self.host}/{name}")

    def _puller(self) -> Puller:
        publishing = read(self.home.config).publishing
        return Puller(publishing, self.lock, self.cache, NoProgress())
