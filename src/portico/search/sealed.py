"""Files of search on disk: a line that vouches for the rest, whole or not there."""

import os
from collections.abc import Container
from contextlib import suppress

from portico.catalog.disk import make_private
from portico.catalog.header import Damaged, Newer, headed, verified
from portico.config.files import replace

__all__ = ["Damaged", "Newer", "newest", "read", "sweep", "write"]

MAX_SIZE = 1 << 28


def read(path: str, kind: str, format: int, plain: Container[int] = ()) -> bytes | None:
    """What was written there; None if there is no file or one of an older format. The `plain`
    formats are the same but for the digest, which does not cover their header."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_SIZE + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    found, rest = verified(data, kind, format, plain)
    return bytes(rest) if found == format or found in plain else None


def write(path: str, kind: str, format: int, rest: bytes) -> None:
    """Replace what is there, at once; OSError leaves it as it was."""
    make_private(os.path.dirname(path))
    replace(path, headed(kind, format, rest))


def newest(folder: str, ending: str) -> list[str]:
    """The files with this ending, the newest first."""
    return [path for _, path in sorted(_dated(folder, ending), reverse=True)]


def sweep(folder: str, now: float, older_than: float = 3600.0) -> None:
    """Remove the drafts of writers that were killed."""
    for at, path in _dated(folder, ".draft"):
        if now - at > older_than:
            with suppress(OSError):
                os.unlink(path)


def _dated(folder: str, ending: str) -> list[tuple[float, str]]:
    found: list[tuple[float, str]] = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(ending):
                with suppress(OSError):
                    found.append((entry.stat(follow_symlinks=False).st_mtime, entry.path))
    return found
