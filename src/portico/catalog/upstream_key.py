"""Which upstream is which: a key that differs as soon as another account could answer."""

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache

from portico.model.context import LOCAL
from portico.model.digest import blake2b
from portico.state import files

FILE_NAME = "catalog-secret"
_FORMAT = "1"
_SIZE = 32
_NONE: Mapping[str, str] = {}


def upstream_key(
    secret: bytes,
    *,
    argv: Sequence[str] = (),
    url: str = "",
    cwd: str = "",
    env: Mapping[str, str] = _NONE,
    headers: Mapping[str, str] = _NONE,
    principal: str = LOCAL,
) -> str:
    """A file name for this upstream as this account sees it; it tells nothing without the secret.

    Either argv or url is given. Relative paths in argv mean something only with an absolute cwd.
    """
    # Arguments and URLs hold tokens too, so all of it is keyed, not only environment and headers.
    text = _framed(
        (
            _bytes(_FORMAT),
            b"command" if argv else b"url",
            _framed(map(_bytes, argv)),
            _bytes(url),
            _bytes(cwd),
            _pairs(env.items()),
            _pairs((name.lower(), value) for name, value in headers.items()),
            _bytes(principal),
        )
    )
    return blake2b(text, key=secret, digest_size=20, person=b"portico upstream").hexdigest()


def user_secret(state_dir: str | os.PathLike[str]) -> bytes:
    """The secret in this folder, made if need be; one for this process if none can be kept."""
    folder = os.fspath(state_dir)
    path = os.path.join(folder, FILE_NAME)
    try:
        found = _known(path)
        if not found:
            files.make_private(folder)
            with suppress(FileExistsError):
                (files.create if found is None else files.replace)(path, os.urandom(_SIZE))
            found = _known(path)  # ours, or that of a process that was faster
    except OSError:
        found = None
    return found or _of_this_process()


@cache
def _of_this_process() -> bytes:
    return os.urandom(_SIZE)


def _known(path: str) -> bytes | None:
    """The secret; None if there is no file, and empty if it cannot be trusted."""
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
    """All parts, each after its length: no two different lists give the same bytes."""
    return b"".join([len(part).to_bytes(8, "big") + part for part in parts])


def _bytes(text: str) -> bytes:
    # The environment may hold bytes that are no text; Python shows them as lone surrogates.
    return text.encode("utf-8", "surrogatepass")
