"""Checks servers' names, and derives a valid name from any other, always the same one."""

import re
from collections.abc import Iterable
from hashlib import blake2b

NAME_LIMIT = 40
"""A server's name is part of its tools' names, which clients limit to 64 characters."""
_INVALID = r"[^A-Za-z0-9_-]+"
_HASH_BYTES = 3
"""Bytes of the hash, written as twice as many characters."""


def is_valid_name(name: str) -> bool:
    """True if a server may have this name."""
    # Every start checks one: a pattern would take longer to compile.
    if not (0 < len(name) <= NAME_LIMIT and name.isascii()) or "__" in name or name[-1] == "_":
        return False
    return all(char.isalnum() or char in "_-" for char in name)


def valid_name(name: str) -> str:
    """The name itself if it is valid, or else a similar valid one."""
    if is_valid_name(name):
        return name
    cleaned = re.sub("__+", "_", re.sub(_INVALID, "-", name)).strip("-").rstrip("_")
    if not cleaned:
        return f"server-{_hash(name)}"
    return cleaned if is_valid_name(cleaned) else _with_hash(cleaned, name)


def valid_names(names: Iterable[str]) -> dict[str, str]:
    """Each name by its valid form; the second of two equal forms gets a suffix."""
    found: dict[str, str] = {}
    for name in names:
        short, salt = valid_name(name), name
        while short in found:
            short = _with_hash(valid_name(name), salt)
            salt += "\0"
        found[short] = name
    return found


def _with_hash(cleaned: str, name: str) -> str:
    room = NAME_LIMIT - 2 * _HASH_BYTES - 1
    return f"{cleaned[:room].rstrip('_')}-{_hash(name)}"


def _hash(name: str) -> str:
    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=_HASH_BYTES).hexdigest()
