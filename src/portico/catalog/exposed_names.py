"""What a tool or prompt of one server is called among those of many: `server__tool`.

Names depend on their own server alone, so that another server never changes them.
"""

import re
from collections import Counter
from collections.abc import Iterable

from portico.model.digest import blake2b

SEPARATOR = "__"
LIMIT = 64
_PLAIN = re.compile(r"[A-Za-z0-9_-]+")
_OTHER = re.compile(r"[^A-Za-z0-9_-]+")
_MARK = 8
"""Hexadecimal digits that tell apart what was shortened."""


def exposed_names(server: str, names: Iterable[str], limit: int = LIMIT) -> dict[str, str]:
    """By its own name, the exposed name of each; all different.

    A name that fits stays as it is. One with other characters gets `_` for them, unless another
    would then have the same name; one that is too long is cut. What does not tell any more which
    one it was gets a mark made from its whole name.
    """
    found: dict[str, str] = {}
    odd: list[str] = []
    for name in names:
        whole = f"{server}{SEPARATOR}{name}"
        if len(whole) <= limit and _PLAIN.fullmatch(name):
            found[name] = whole
        else:
            odd.append(name)
    if not odd:
        return found
    drafts = {name: f"{server}{SEPARATOR}{_OTHER.sub('_', name)}" for name in odd}
    taken = set(found.values())
    drafted = Counter(drafts.values())
    for name, draft in drafts.items():
        fits = len(draft) <= limit and draft not in taken and drafted[draft] == 1
        found[name] = draft if fits else _marked(draft, f"{server}{SEPARATOR}{name}", limit)
    return found


def _marked(draft: str, whole: str, limit: int) -> str:
    mark = blake2b(whole.encode("utf-8", "surrogatepass"), digest_size=_MARK // 2).hexdigest()
    return f"{draft[: limit - _MARK - 1]}_{mark}"
