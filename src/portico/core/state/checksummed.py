"""Files with a header line: their kind and format, and a digest of the whole file."""

import errno
from collections.abc import Callable, Mapping
from hashlib import blake2b

import msgspec

from portico.core.state import files

MAX_SIZE = 1 << 28
_MAX_HEADER = 1024


class _Header(msgspec.Struct):
    """Its fields stay in all future formats, so that newer files can be verified too."""

    portico: str
    format: int
    digest: str = ""
    length: int = 0


class Damaged(Exception):
    """The file does not contain the data that was written."""


class Newer(Exception):
    """The file was written by a newer Portico; it must not be used or changed."""


Older = Mapping[int, Callable[[memoryview], str]]
"""By format, how to compute the digest of an older file from its content."""
_NONE: Older = {}
PLAIN: Older = {1: lambda rest: blake2b(rest).hexdigest()}
"""Files of format 1, whose digest does not cover the header."""
_header = msgspec.json.Decoder(_Header).decode


def pack(kind: str, format: int, rest: bytes) -> bytes:
    """Return the whole file; raise OSError if it would be too large to read."""
    if len(rest) > MAX_SIZE - _MAX_HEADER:
        raise OSError(errno.EFBIG, f"the file would exceed {MAX_SIZE} bytes")
    header = _Header(kind, format, _digest(kind, format, rest), len(rest))
    return msgspec.json.encode(header) + b"\n" + rest


def unpack(data: bytes, kind: str, format: int, older: Older = _NONE) -> memoryview:
    """Return a file's content without the header; raise Damaged or Newer."""
    end = data.find(b"\n", 0, _MAX_HEADER)
    try:
        header = _header(data[: max(end, 0)])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise Damaged("the header is missing or invalid") from None
    if header.portico != kind:
        raise Damaged(f"it is not a file of kind {kind}")
    rest = memoryview(data)[end + 1 :]
    if header.format in older:
        found = older[header.format](rest)
    elif len(rest) != header.length:
        raise Damaged(f"it has {len(rest)} bytes, expected {header.length}")
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
    """Return a file's content, None if it does not exist; raise Damaged, Newer or OSError."""
    try:
        data, _ = files.read(path, MAX_SIZE)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return unpack(data, kind, format, older)


def write(path: str, kind: str, format: int, rest: bytes) -> None:
    """Replace a file atomically; OSError leaves it unchanged."""
    files.replace(path, pack(kind, format, rest))


def _digest(kind: str, format: int, rest: bytes | memoryview) -> str:
    """Covers the format too: a flipped bit in it must not look like a newer Portico's file."""
    return blake2b(rest, key=f"{kind} {format}".encode()[:64]).hexdigest()
