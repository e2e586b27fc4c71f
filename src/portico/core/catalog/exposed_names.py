"""The names of tools and prompts in a gateway: `server__tool`.

A name depends on its own server only, so that another server never changes it.
"""

import re
from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b

SEPARATOR = "__"
LIMIT = 64
_PLAIN = re.compile(r"[A-Za-z0-9_-]+")
_OTHER = re.compile(r"[^A-Za-z0-9_-]+")
_HASH_DIGITS = 8
"""Hexadecimal digits that distinguish shortened names."""


def exposed_names(server: str, names: Iterable[str], limit: int = LIMIT) -> dict[str, str]:
    """Return the exposed name of each name; no two are the same.

    A name that fits is kept. Other characters become `_`. A name that is then too long, or the
    same as another, is cut and ends with a hash of the whole name.
    """
    found: dict[str, str] = {}
    rest: list[str] = []
    for name in names:
        whole = f"{server}{SEPARATOR}{name}"
        if len(whole) <= limit and _PLAIN.fullmatch(name):
            found[name] = whole
        else:
            rest.append(name)
    if not rest:
        return found
    drafts = {name: f"{server}{SEPARATOR}{_OTHER.sub('_', name)}" for name in rest}
    taken = set(found.values())
    drafted = Counter(drafts.values())
    for name, draft in drafts.items():
        fits = len(draft) <= limit and draft not in taken and drafted[draft] == 1
        found[name] = draft if fits else _with_hash(draft, f"{server}{SEPARATOR}{name}", limit)
    return found


def _with_hash(draft: str, whole: str, limit: int) -> str:
    hash_digits = blake2b(
        whole.encode("utf-8", "surrogatepass"), digest_size=_HASH_DIGITS // 2
    ).hexdigest()
    return f"{draft[: limit - _HASH_DIGITS - 1]}_{hash_digits}"
