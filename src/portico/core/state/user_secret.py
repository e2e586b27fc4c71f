"""The secret of this user, with which ids and file names are made that reveal nothing."""

import os
import stat
from contextlib import suppress
from functools import cache

from portico.core.state import files

FILE_NAME = "catalog-secret"
_SIZE = 32


def user_secret(state_dir: str | os.PathLike[str]) -> bytes:
    """Return the secret in this folder, created on first use; one of this process if that fails."""
    folder = os.fspath(state_dir)
    path = os.path.join(folder, FILE_NAME)
    try:
        found = _read_secret(path)
        if not found:
            files.make_private(folder)
            with suppress(FileExistsError):
                (files.create if found is None else files.replace)(path, os.urandom(_SIZE))
            found = _read_secret(path)  # ours, or that of a faster process
    except OSError:
        found = None
    return found or _process_secret()


@cache
def _process_secret() -> bytes:
    return os.urandom(_SIZE)


def _read_secret(path: str) -> bytes | None:
    """Return the secret, None if there is no file, or b"" if it is not trusted."""
    try:
        handle = os.open(path, files.READ)
    except FileNotFoundError:
        return None
    except OSError:
        return b""
    with os.fdopen(handle, "rb", buffering=0) as file:
        status = os.fstat(file.fileno())
        private = os.name != "posix" or (
            status.st_uid == os.geteuid() and not status.st_mode & 0o077
        )
        if not stat.S_ISREG(status.st_mode) or not private:
            return b""
        secret = file.read(_SIZE + 1)
    return secret if len(secret) == _SIZE else b""
