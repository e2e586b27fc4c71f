"""Cursors that stay good: they name the last item seen, and its place in case it goes."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error

import msgspec
from msgspec import Struct


class _Place(Struct, array_like=True):
    kind: str
    seen: int
    """How many items came before the next page."""
    last: str
    """The key of the last of them."""


_decode = msgspec.json.Decoder(_Place).decode


def write(kind: str, seen: int, last: str) -> str:
    """The cursor to what follows this item."""
    text = msgspec.json.encode(_Place(kind, seen, last))
    return urlsafe_b64encode(text).decode().rstrip("=")


def read(cursor: str, kind: str, keys: dict[str, int]) -> int | None:
    """Where the next page starts in a list with these keys; None for no cursor of ours.

    Right after the item last seen, wherever it is now; if it is gone, at the place it had.
    """
    try:
        place = _decode(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (Base64Error, ValueError, msgspec.DecodeError):
        return None
    if place.kind != kind or place.seen < 1 or write(kind, place.seen, place.last) != cursor:
        return None
    index = keys.get(place.last)
    return min(place.seen - 1, len(keys)) if index is None else index + 1
