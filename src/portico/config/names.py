"""Servers' names: what fits, and how other names are made to fit, always the same way."""

import re
from collections.abc import Iterable

from portico.config.schema import NAME_LIMIT
from portico.model.digest import blake2b

_FITS = re.compile(r"(?!.*__)[A-Za-z0-9_-]*[A-Za-z0-9-]", re.ASCII)
_OTHERS = r"[^A-Za-z0-9_-]+"
_TAIL = 3
"""Bytes of the hash; in a name they are twice as many characters."""


def fits(name: str) -> bool:
    """Whether a server may be called so."""
    return len(name) <= NAME_LIMIT and _FITS.fullmatch(name) is not None


def fitted(name: str) -> str:
    """A name that fits: the same if it does, else as near as can be."""
    if fits(name):
        return name
    near = re.sub("__+", "_", re.sub(_OTHERS, "-", name)).strip("-").rstrip("_")
    if not near:
        return f"server-{_hash(name)}"
    return near if fits(near) else _with_hash(near, name)


def all_fitted(names: Iterable[str]) -> dict[str, str]:
    """Each name, by the one that fits; of two that become the same, the later gets a suffix."""
    found: dict[str, str] = {}
    for name in names:
        short, salt = fitted(name), name
        while short in found:
            short = _with_hash(fitted(name), salt)
            salt += "\0"
        found[short] = name
    return found


def _with_hash(near: str, name: str) -> str:
    room = NAME_LIMIT - 2 * _TAIL - 1
    return f"{near[:room].rstrip('_')}-{_hash(name)}"


def _hash(name: str) -> str:
    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=_TAIL).hexdigest()
