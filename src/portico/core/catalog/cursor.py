"""Cursors that survive changes: they name the last item sent, and its position as a fallback."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error

import msgspec
from msgspec import Struct


class _Cursor(Struct, array_like=True):
    kind: str
    seen: int
    """The number of items before the next page."""
    last: str
    """The key of the last item."""


_decode = msgspec.json.Decoder(_Cursor).decode


def write(kind: str, seen: int, last: str) -> str:
    """Return the cursor of the page after this item."""
    text = msgspec.json.encode(_Cursor(kind, seen, last))
    return urlsafe_b64encode(text).decode().rstrip("=")


def read(cursor: str, kind: str, keys: dict[str, int]) -> int | None:
    """Return the index where the next page starts, or None if the cursor is not valid.

    It is the index after the last item sent; if that item was removed, its old position.
    """
    try:
        place = _decode(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (Base64Error, ValueError, msgspec.DecodeError):
        return None
    if place.kind != kind or place.seen < 1 or write(kind, place.seen, place.last) != cursor:
        return None
    index = keys.get(place.last)
    return min(place.seen - 1, len(keys)) if index is None else index + 1
