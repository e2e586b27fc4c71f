"""The offer of a provider as immutable data: every definition is already encoded."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from portico.core.model.errors import NameClash, RegistrationError
from portico.core.model.methods import LIST_KINDS
from portico.core.model.version import MODERN, Version

KEYS = {name: kind.key for name, kind in LIST_KINDS.items()}
"""By kind of list, the field that identifies its items."""
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
    """The unique key of each item: its name, URI or URI template."""
    more: bytes = b"{}"
    """The other fields of the first page (`_meta`, `ttlMs`, ...) as a raw JSON object."""
    page_size: int = 0
    """The number of items on a page; 0 for all on one page."""
    omitted: int = 0
    """The number of items beyond the limit, at least."""

    def filtered(self, allows: Callable[[str], bool]) -> "Listed":
        """Return the items whose keys are allowed; this same object if all are."""
        if all(map(allows, self.keys)):
            return self
        pairs = [pair for pair in zip(self.keys, self.items, strict=True) if allows(pair[0])]
        items, keys = tuple([raw for _, raw in pairs]), tuple([key for key, _ in pairs])
        return replace(self, items=items, keys=keys)

    def extended(self, kind: str, more: "Listed", shadow: frozenset[str]) -> "Listed":
        """Return the items with more of them; raises NameClash for a key that exists and is not in
        `shadow`."""
        found = dict(zip(self.keys, self.items, strict=True))
        for key, raw in zip(more.keys, more.items, strict=True):
            if key in found and key not in shadow:
                raise NameClash(kind, key)
            found[key] = raw
        return replace(self, items=tuple(found.values()), keys=tuple(found))

    def limited(self, limit: int) -> "Listed":
        """Return the first items, up to a limit."""
        beyond = len(self.keys) - limit
        if beyond <= 0:
            return self
        items, keys = self.items[:limit], self.keys[:limit]
        return replace(self, items=items, keys=keys, omitted=self.omitted + beyond)


EMPTY_LIST = Listed()


class Offer(Struct, frozen=True):
    """A snapshot of all that a provider offers."""

    version: Version = MODERN[-1]
    """The protocol version of its definitions."""
    introduction: bytes = b""
    """A server's result of `initialize` or `server/discover`; empty for other providers."""
    lists: Mapping[str, Listed] = {}
    """By kind: `tools`, `resources`, `templates`, `prompts`. Kinds without items are absent."""
    taken: float = 0.0
    """When it was fetched from a server, in seconds since the epoch."""
    completions: bool = False
    subscriptions: bool = False
    declared: frozenset[str] = frozenset()
    """Kinds to declare even without items: `tools`, `resources`, `prompts`."""
    asks: frozenset[str] = frozenset()
    """The questions that a server has sent so far: `roots`, `sampling`, `elicitation`; `start` if
    it read roots before its first call, `legacy` if it refused to send any in the modern era."""

    @classmethod
    def of(cls, *, completions: bool = False, subscriptions: bool = False, **lists: Any) -> "Offer":
        """Create an offer of definitions by kind: `Offer.of(tools=[{"name": ...}, ...])`."""
        made = {kind: _listed(kind, definitions) for kind, definitions in lists.items()}
        return cls(lists=made, completions=completions, subscriptions=subscriptions)

    def listed(self, kind: str) -> Listed:
        """Return one of its lists, empty if it is absent."""
        return self.lists.get(kind, EMPTY_LIST)

    def declaring_all(self) -> "Offer":
        """Return the same offer, which declares every kind of list."""
        return replace(self, declared=self.declared | {"tools", "resources", "prompts"})

    def keep(self, **allows: Callable[[str], bool]) -> "Offer":
        """Return an offer with only the items of a kind whose names or URIs a function allows."""
        lists = dict(self.lists)
        for kind, allowed in allows.items():
            if kind in lists:
                lists[kind] = lists[kind].filtered(allowed)
        same = all(lists[kind] is listed for kind, listed in self.lists.items())
        return self if same else replace(self, lists=lists)

    def adding(
        self,
        *,
        tools: Iterable[Mapping[str, Any]] = (),
        resources: Iterable[Mapping[str, Any]] = (),
        templates: Iterable[Mapping[str, Any]] = (),
        prompts: Iterable[Mapping[str, Any]] = (),
        shadow: Iterable[str] = (),
    ) -> "Offer":
        """Return an offer with more definitions. A name that exists already raises NameClash,
        unless `shadow` contains it: then the new definition replaces the old one."""
        added = {"tools": tools, "resources": resources, "templates": templates, "prompts": prompts}
        more = {kind: _checked(kind, definitions) for kind, definitions in added.items()}
        shadowed = frozenset([shadow] if isinstance(shadow, str) else shadow)
        if unknown := shadowed.difference(*(listed.keys for listed in more.values())):
            names = ", ".join(sorted(map(repr, unknown)))
            raise RegistrationError(
                f"cannot shadow {names}: the call adds no such name; add it too"
            )
        lists = dict(self.lists)
        for kind, listed in more.items():
            if listed.keys:
                lists[kind] = self.listed(kind).extended(kind, listed, shadowed)
        return replace(self, lists=lists)

    def limited(self, limit: int) -> "Offer":
        """Return an offer with at most this number of items in each list."""
        if all(len(listed.keys) <= limit for listed in self.lists.values()):
            return self
        lists = {kind: listed.limited(limit) for kind, listed in self.lists.items()}
        return replace(self, lists=lists)

    def same(self, other: "Offer | None") -> bool:
        """True if it offers the same; the time of the fetch does not matter."""
        return other is not None and self == replace(other, taken=self.taken)


def _listed(kind: str, definitions: Iterable[Mapping[str, Any]]) -> Listed:
    items = {str(item[KEYS[kind]]): msgspec.json.encode(item) for item in definitions}
    return Listed(items=tuple(items.values()), keys=tuple(items))


def _checked(kind: str, definitions: Iterable[Mapping[str, Any]]) -> Listed:
    """Return a list of definitions that clients accept; raises RegistrationError."""
    given = list(definitions)
    for item in given:
        key = item.get(KEYS[kind])
        if not isinstance(key, str) or not key:
            shown = f"{dict(item)!r:.200}"
            raise RegistrationError(f"cannot add {shown}: it has no {KEYS[kind]!r}")
        if kind == "tools" and not isinstance(item.get("inputSchema"), Mapping):
            why = "it has no inputSchema; a tool without arguments has {'type': 'object'}"
            raise RegistrationError(f"cannot add tool {key!r}: {why}")
    return _listed(kind, given)
