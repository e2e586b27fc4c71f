"""The bytes around the files of a bundle: a zip file that stores them as they are.

    portico.json, each file, the list of all of them

The manifest determines every byte but the files themselves. So a reader needs no parser of zip
files: it compares, and refuses everything that `portico compose` would not have written.
"""

import struct
import zlib
from collections.abc import Sequence

from msgspec import Struct

_FLAGS = 0x800  # names are UTF-8
_VERSION, _UNIX = 20, 3 << 8
_TIME, _DATE = 0, 0x0021  # the first day that a zip file can name
_REGULAR = 0o100644 << 16
_LOCAL = struct.Struct("<4s5H3L2H")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_END = struct.Struct("<4s4H2LH")
LOCAL_SIZE = _LOCAL.size
MAGIC = b"PK\3\4"


class StoredFile(Struct, frozen=True):
    """One file in its place."""

    name: str
    size: int
    crc: int


def checksum(data: bytes, before: int = 0) -> int:
    """Return the checksum of a zip file."""
    return zlib.crc32(data, before)


def local_header(file: StoredFile) -> bytes:
    """Return the bytes before a file."""
    name = file.name.encode()
    fields = (_VERSION, _FLAGS, 0, _TIME, _DATE, file.crc, file.size, file.size, len(name), 0)
    return _LOCAL.pack(MAGIC, *fields) + name


def directory(files: Sequence[StoredFile]) -> bytes:
    """Return the bytes after all files: their list, and its end."""
    found: list[bytes] = []
    offset = 0
    for file in files:
        name = file.name.encode()
        fields = (_VERSION | _UNIX, _VERSION, _FLAGS, 0, _TIME, _DATE)
        sizes = (file.crc, file.size, file.size, len(name), 0, 0, 0, 0)
        found.append(_CENTRAL.pack(b"PK\1\2", *fields, *sizes, _REGULAR, offset) + name)
        offset += LOCAL_SIZE + len(name) + file.size
    listed = b"".join(found)
    count = len(files)
    return listed + _END.pack(b"PK\5\6", 0, 0, count, count, len(listed), offset, 0)


def directory_size(names: Sequence[str]) -> int:
    """Return the size of that list."""
    return sum(_CENTRAL.size + len(name.encode()) for name in names) + _END.size


def size_in(header: bytes) -> int:
    """Return the size of the file after this header."""
    size: int = _LOCAL.unpack(header[:LOCAL_SIZE])[8]
    return size
