"""Files of search on disk: a line that vouches for the rest, whole or not there."""

import os
from _blake2 import blake2b
from contextlib import suppress

import msgspec

from portico.catalog.disk import make_private, write_new

MAX_SIZE = 1 << 28


class _Header(msgspec.Struct):
    """The first line. `portico` and `format` stay in every format to come."""

    portico: str
    format: int
    digest: str = ""
    length: int = 0


class Damaged(Exception):
    """A file that is not what was written."""


class Newer(Exception):
    """A file of a newer Portico, neither to be used nor to be changed."""


def read(path: str, kind: str, format: int) -> bytes | None:
    """What was written there; None if there is no file or one of an older format."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_SIZE + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    end = data.find(b"\n", 0, 1024)
    try:
        header = msgspec.json.decode(data[: max(end, 0)], type=_Header)
    except (msgspec.MsgspecError, ValueError):
        raise Damaged("it has no header") from None
    if header.portico != kind:
        raise Damaged("it has another header")
    if header.format > format:
        raise Newer(f"it has format {header.format}, of a newer Portico")
    if header.format < format:
        return None
    rest = data[end + 1 :]
    if len(rest) != header.length or blake2b(rest).hexdigest() != header.digest:
        raise Damaged("its digest is another")
    return rest


def write(path: str, kind: str, format: int, rest: bytes) -> None:
    """Replace what is there, at once; OSError leaves it as it was."""
    folder = os.path.dirname(path)
    make_private(folder)
    header = _Header(kind, format, blake2b(rest).hexdigest(), len(rest))
    draft = os.path.join(folder, f".{os.path.basename(path)}.{os.urandom(8).hex()}.draft")
    try:
        write_new(draft, msgspec.json.encode(header) + b"\n" + rest)
        os.replace(draft, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(draft)
        raise


def newest(folder: str, ending: str) -> list[str]:
    """The files with this ending, the newest first."""
    found: list[tuple[float, str]] = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(ending) and not entry.name.startswith("."):
                with suppress(OSError):
                    found.append((entry.stat(follow_symlinks=False).st_mtime, entry.path))
    return [path for _, path in sorted(found, reverse=True)]


def sweep(folder: str, now: float, older_than: float = 3600.0) -> None:
    """Remove the drafts of writers that were killed."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(".") and entry.name.endswith(".draft"):
                with suppress(OSError):
                    if now - entry.stat(follow_symlinks=False).st_mtime > older_than:
                        os.unlink(entry.path)
