"""Which upstream is which: a key that differs as soon as another account could answer."""

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache

from portico.catalog.disk import make_private, write_new
from portico.model.context import LOCAL
from portico.model.digest import blake2b

FILE_NAME = "catalog-secret"
_FORMAT = "1"
_SIZE = 32
_NONE: Mapping[str, str] = {}
# A link could point to a file that others write to; a pipe would make us wait for its writer.
_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


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
            make_private(folder)
            _create(path, replace=found is not None)
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
        handle = os.open(path, _READ)
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


def _create(path: str, *, replace: bool) -> None:
    """Write a new secret beside its place and move it there: whole, or not at all."""
    folder, name = os.path.split(path)
    draft = os.path.join(folder, f".{name}.{os.urandom(8).hex()}")
    try:
        write_new(draft, os.urandom(_SIZE))
        if replace:
            os.replace(draft, path)
        else:
            os.link(draft, path)
    except FileExistsError:
        pass  # another process was faster: its secret counts
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft)


def _pairs(items: Iterable[tuple[str, str]]) -> bytes:
    return _framed(_bytes(part) for pair in sorted(items) for part in pair)


def _framed(parts: Iterable[bytes]) -> bytes:
    """All parts, each after its length: no two different lists give the same bytes."""
    return b"".join([len(part).to_bytes(8, "big") + part for part in parts])


def _bytes(text: str) -> bytes:
    # The environment may hold bytes that are no text; Python shows them as lone surrogates.
    return text.encode("utf-8", "surrogatepass")
