"""Files whose first line has their kind and format, and a digest of these and of the rest."""

import errno
from collections.abc import Callable, Mapping

import msgspec

from portico.model.digest import blake2b
from portico.state import files

MAX_SIZE = 1 << 28
_LONGEST = 1024


class _Header(msgspec.Struct):
    """All of its fields stay in every format to come, so that a newer file can be verified too."""

    portico: str
    format: int
    digest: str = ""
    length: int = 0


class Damaged(Exception):
    """A file that does not hold what was written."""


class Newer(Exception):
    """A file of a newer Portico, neither to be used nor to be changed."""


Older = Mapping[int, Callable[[memoryview], str]]
"""By format, how the digest of an older file is made from the rest."""
_NONE: Older = {}
PLAIN: Older = {1: lambda rest: blake2b(rest).hexdigest()}
"""Files of format 1 in which the digest does not cover the header."""
_header = msgspec.json.Decoder(_Header).decode


def packed(kind: str, format: int, rest: bytes) -> bytes:
    """The whole file; OSError if it would be too large to be read again."""
    if len(rest) > MAX_SIZE - _LONGEST:
        raise OSError(errno.EFBIG, f"it would have more than {MAX_SIZE} bytes")
    header = _Header(kind, format, _digest(kind, format, rest), len(rest))
    return msgspec.json.encode(header) + b"\n" + rest


def unpacked(data: bytes, kind: str, format: int, older: Older = _NONE) -> memoryview:
    """All of a file but the first line; raises Damaged or Newer."""
    end = data.find(b"\n", 0, _LONGEST)
    try:
        header = _header(data[: max(end, 0)])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise Damaged("it has no header") from None
    if header.portico != kind:
        raise Damaged("it has another header")
    rest = memoryview(data)[end + 1 :]
    if header.format in older:
        found = older[header.format](rest)
    elif len(rest) != header.length:
        raise Damaged(f"it has {len(rest)} bytes instead of {header.length}")
    else:
        found = _digest(kind, header.format, rest)
    if found != header.digest:
        raise Damaged("its digest does not match")
    if header.format > format:
        raise Newer(f"it has format {header.format}, of a newer Portico")
    if header.format != format and header.format not in older:
        raise Damaged(f"format {header.format} is unknown")
    return rest


def read(path: str, kind: str, format: int, older: Older = _NONE) -> memoryview | None:
    """What was written there, None if there is no file; raises Damaged, Newer or OSError."""
    try:
        data, _ = files.read(path, MAX_SIZE)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return unpacked(data, kind, format, older)


def write(path: str, kind: str, format: int, rest: bytes) -> None:
    """Replace what is there, at once; OSError leaves it as it was."""
    files.replace(path, packed(kind, format, rest))


def _digest(kind: str, format: int, rest: bytes | memoryview) -> str:
    """Covers the format too: a flipped bit in it must not look like a newer Portico's file."""
    return blake2b(rest, key=f"{kind} {format}".encode()[:64]).hexdigest()
