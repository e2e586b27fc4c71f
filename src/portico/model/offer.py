"""What a provider offers, as immutable data: every definition is ready bytes."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from portico.model.methods import LIST_KINDS
from portico.model.version import MODERN, Version

KEYS = {name: kind.key for name, kind in LIST_KINDS.items()}
"""By kind of list, the field by which its items are asked for."""
KINDS = tuple(KEYS)


class HeaderParam(Struct, frozen=True):
    """A tool parameter that modern HTTP clients mirror into an `Mcp-Param-*` header."""

    header: str
    """The header's whole name, in lower case."""
    path: tuple[str, ...]
    kind: str
    """`string`, `integer` or `boolean`."""


class Listed(Struct, frozen=True):
    """One whole list, all pages of it."""

    items: tuple[bytes, ...] = ()
    """Each definition as raw JSON."""
    keys: tuple[str, ...] = ()
    """What each is asked for by: its name, URI or URI template; all different."""
    more: bytes = b"{}"
    """The other fields of the first page (`_meta`, `ttlMs`, ...) as a raw JSON object."""
    page_size: int = 0
    """How many items are on a page; 0 for all on one."""
    omitted: int = 0
    """How many more a server has, at least, that are beyond the limit."""

    def filtered(self, allows: Callable[[str], bool]) -> "Listed":
        """The items whose keys are allowed; the very same list if all are."""
        if all(map(allows, self.keys)):
            return self
        pairs = [pair for pair in zip(self.keys, self.items, strict=True) if allows(pair[0])]
        items, keys = tuple([raw for _, raw in pairs]), tuple([key for key, _ in pairs])
        return replace(self, items=items, keys=keys)

    def limited(self, most: int) -> "Listed":
        """The first so many items."""
        beyond = len(self.keys) - most
        if beyond <= 0:
            return self
        items, keys = self.items[:most], self.keys[:most]
        return replace(self, items=items, keys=keys, omitted=self.omitted + beyond)


EMPTY_LIST = Listed()


class Offer(Struct, frozen=True):
    """All that a provider offers at one time."""

    version: Version = MODERN[-1]
    """The protocol version that its definitions are written in."""
    introduction: bytes = b""
    """A server's own result of `initialize` or `server/discover`; empty for other providers."""
    lists: Mapping[str, Listed] = {}
    """By kind (`tools`, `resources`, `templates`, `prompts`); what there is none of is missing."""
    taken: float = 0.0
    """When a server was asked, in seconds since the epoch."""
    completions: bool = False
    subscriptions: bool = False
    declared: frozenset[str] = frozenset()
    """Kinds to declare although nothing of them is there yet: `tools`, `resources`, `prompts`."""

    @classmethod
    def of(cls, *, completions: bool = False, subscriptions: bool = False, **lists: Any) -> "Offer":
        """An offer of these definitions, by kind: `Offer.of(tools=[{"name": ...}, ...])`."""
        made = {kind: _listed(kind, definitions) for kind, definitions in lists.items()}
        return cls(lists=made, completions=completions, subscriptions=subscriptions)

    def listed(self, kind: str) -> Listed:
        """One of its lists; empty if it has none."""
        return self.lists.get(kind, EMPTY_LIST)

    def keep(self, **allows: Callable[[str], bool]) -> "Offer":
        """The same with only those items of a kind whose names or URIs this function allows."""
        lists = dict(self.lists)
        for kind, allowed in allows.items():
            if kind in lists:
                lists[kind] = lists[kind].filtered(allowed)
        same = all(lists[kind] is listed for kind, listed in self.lists.items())
        return self if same else replace(self, lists=lists)

    def limited(self, most: int) -> "Offer":
        """The same with at most so many items in each list."""
        if all(len(listed.keys) <= most for listed in self.lists.values()):
            return self
        lists = {kind: listed.limited(most) for kind, listed in self.lists.items()}
        return replace(self, lists=lists)

    def same(self, other: "Offer | None") -> bool:
        """True if it offers the very same; when a server was asked does not matter."""
        return other is not None and self == replace(other, taken=self.taken)


def _listed(kind: str, definitions: Iterable[Mapping[str, Any]]) -> Listed:
    found = {str(one[KEYS[kind]]): msgspec.json.encode(one) for one in definitions}
    return Listed(items=tuple(found.values()), keys=tuple(found))
