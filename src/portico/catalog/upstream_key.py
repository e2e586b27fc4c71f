"""The key of an upstream, which differs for every account."""

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from hashlib import blake2b

from portico.model.context import LOCAL
from portico.state import files

FILE_NAME = "catalog-secret"
_FORMAT = "1"
_SIZE = 32
_EMPTY: Mapping[str, str] = {}


def upstream_key(
    secret: bytes,
    *,
    argv: Sequence[str] = (),
    url: str = "",
    cwd: str = "",
    env: Mapping[str, str] = _EMPTY,
    headers: Mapping[str, str] = _EMPTY,
    account: str = "",
) -> str:
    """Return a file name for an upstream and account, which reveals nothing without the secret.

    Give either argv or url. Relative paths in argv need an absolute cwd. `account` is the id of a
    login; without one, the key is that of the local user.
    """
    # Arguments and URLs may contain tokens too, so everything is hashed with the secret.
    text = _framed(
        (
            _bytes(_FORMAT),
            b"command" if argv else b"url",
            _framed(map(_bytes, argv)),
            _bytes(url),
            _bytes(cwd),
            _pairs(env.items()),
            _pairs((name.lower(), value) for name, value in headers.items()),
            _bytes(account or LOCAL),
        )
    )
    return blake2b(text, key=secret, digest_size=20, person=b"portico upstream").hexdigest()


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


def _pairs(items: Iterable[tuple[str, str]]) -> bytes:
    return _framed(_bytes(part) for pair in sorted(items) for part in pair)


def _framed(parts: Iterable[bytes]) -> bytes:
    """Join parts, each after its length, so that different lists give different bytes."""
    return b"".join([len(part).to_bytes(8, "big") + part for part in parts])


def _bytes(text: str) -> bytes:
    # The environment may contain bytes that are not text, which Python decodes to lone surrogates.
    return text.encode("utf-8", "surrogatepass")
