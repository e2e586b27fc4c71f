"""Replaces a file atomically, and never overwrites a concurrent change by another program."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator

from portico.core.documents.document import read_bytes
from portico.core.documents.problems import ConfigError
from portico.core.state.files import draft, make_folder, sync_folder

_TRIES = 20
_LOCK_S = 10.0
_PAUSE_S = 0.01


def rewrite(path: str, change: Callable[[bytes | None], bytes]) -> None:
    """Replace the file's contents with the result of `change`, which gets None if there is no file.

    A symbolic link stays, and its target is replaced. `change` may be called repeatedly.
    """
    target = os.path.realpath(path)
    folder = os.path.dirname(target)
    try:
        make_folder(folder)
        with _locked(path, folder):
            for _ in range(_TRIES):
                old = current(target)
                new = change(old)
                if new == old or _replaced(target, old, new):
                    return
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be written: {error.strerror or error}; the file is unchanged"
        ) from None
    raise ConfigError(f"{path}: another program keeps changing it; try again later")


def current(target: str) -> bytes | None:
    """The file's content; None if there is no file."""
    return read_bytes(target) if os.path.lexists(target) else None


def _replaced(target: str, old: bytes | None, new: bytes) -> bool:
    """Replace the file; return False if it has changed since it was read."""
    with draft(target, new, target if old is not None else None) as made:
        if current(target) != old:
            return False
        if old is None:
            try:
                os.link(made, target)
            except FileExistsError:
                return False
            except OSError:  # a file system without links; only the lock protects it
                os.replace(made, target)
        else:
            os.replace(made, target)
    sync_folder(os.path.dirname(target))
    return True


@contextlib.contextmanager
def _locked(path: str, folder: str) -> Iterator[None]:
    """Lock out other Porticos; the lock is on the folder, since the file itself is replaced."""
    try:
        import fcntl
    except ImportError:  # Windows: only the comparison before the replacement protects it
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        deadline = time.monotonic() + _LOCK_S
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ConfigError(
                        f"{path}: another program has locked its folder; try again later"
                    ) from None
                time.sleep(_PAUSE_S)
            except OSError:
                break  # not supported on this file system; see above
            else:
                break
        yield
    finally:
        os.close(handle)
