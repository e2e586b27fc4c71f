"""Inputs and results of tasks: in the database, or in files beside it if they are large."""

import os
import secrets
import time
from contextlib import suppress
from hashlib import blake2b

from portico.core.state import files
from portico.core.state.store_error import StoreError
from portico.library.tasks.store.rows import Payload

_STRAY_S = 300.0
"""How old a file is that no task refers to, and none will."""


class PayloadFiles:
    """A folder of large payloads; without one, all are kept in the database."""

    def __init__(self, folder: str | None, inline: int) -> None:
        self._folder = folder
        self._inline = inline

    def is_large(self, data: bytes) -> bool:
        """True if this is kept in a file, and takes time to write."""
        return self._folder is not None and len(data) > self._inline

    def put(self, data: bytes) -> Payload:
        """Store the data, before a task refers to it."""
        digest = blake2b(data).hexdigest()
        if self._folder is None or not self.is_large(data):
            return data, None, digest
        name = secrets.token_hex(16)
        try:
            files.make_private(self._folder)
            files.replace(self._path(name), data)
            files.sync_folder(self._folder)
        except OSError as error:
            raise StoreError(
                f"cannot store {len(data)} bytes in {self._folder}: {error.strerror or error}; "
                "make the folder writable, with free space, and retry"
            ) from error
        return None, name, digest

    def get(self, payload: Payload) -> bytes:
        """Read the data."""
        data, name, digest = payload
        if name is not None:
            try:
                with open(self._path(name), "rb") as file:
                    data = file.read()
            except OSError as error:
                raise StoreError(
                    f"cannot read {self._path(name)}: {error.strerror}; restore it from a copy"
                ) from error
        assert data is not None
        if blake2b(data).hexdigest() != digest:
            where = "in the task store" if name is None else self._path(name)
            raise StoreError(f"cannot read the data of a task: damaged {where}; restore a copy")
        return data

    def remove(self, names: list[str]) -> None:
        """Remove the files of tasks that do not exist any more."""
        for name in names:
            with suppress(OSError):  # then it is a stray file, which `sweep` removes
                os.unlink(self._path(name))

    def sweep(self, known: set[str]) -> None:
        """Remove files of writers that were killed: the unknown ones, unless a task may be about to
        refer to them."""
        if self._folder is None or not os.path.isdir(self._folder):
            return
        with os.scandir(self._folder) as found:
            strays = [file for file in found if file.name not in known]
        self.remove([file.name for file in strays if _is_old(file)])

    def _path(self, name: str) -> str:
        return os.path.join(self._folder or "", name)


def _is_old(file: os.DirEntry[str]) -> bool:
    try:
        return time.time() - file.stat().st_mtime > _STRAY_S
    except OSError:
        return False  # another process has removed it
