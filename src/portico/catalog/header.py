"""The first line of a stored file: its kind and format, and a digest of these and of the rest."""

from collections.abc import Container

import msgspec

from portico.model.digest import blake2b

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


_header = msgspec.json.Decoder(_Header).decode


def headed(kind: str, format: int, rest: bytes) -> bytes:
    """The whole file."""
    header = _Header(kind, format, _digest(kind, format, rest), len(rest))
    return msgspec.json.encode(header) + b"\n" + rest


def verified(
    data: bytes, kind: str, format: int, plain: Container[int] = ()
) -> tuple[int, memoryview]:
    """The format of a file, and all of it but the first line; raises Damaged or Newer.

    In the `plain` formats, which are old, the digest covers the rest alone.
    """
    end = data.find(b"\n", 0, _LONGEST)
    try:
        header = _header(data[: max(end, 0)])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise Damaged("it has no header") from None
    if header.portico != kind:
        raise Damaged("it has another header")
    rest = memoryview(data)[end + 1 :]
    if len(rest) != header.length:
        raise Damaged(f"it has {len(rest)} bytes instead of {header.length}")
    found = (
        blake2b(rest).hexdigest() if header.format in plain else _digest(kind, header.format, rest)
    )
    if found != header.digest:
        raise Damaged("its digest does not match")
    if header.format > format:
        raise Newer(f"it has format {header.format}, of a newer Portico")
    return header.format, rest


def _digest(kind: str, format: int, rest: bytes | memoryview) -> str:
    """Covers the format too: a flipped bit in it must not look like a newer Portico's file."""
    return blake2b(rest, key=f"{kind} {format}".encode()[:64]).hexdigest()
