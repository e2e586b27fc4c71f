"""What several providers offer together at one time, and where each part of it leads."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property

from msgspec import Struct

from portico.catalog.clashes import clashes
from portico.catalog.namespaced import NamespacedOffer, with_field
from portico.catalog.resource_routing import ResourceRouting, ServerResources
from portico.model.digest import blake2b
from portico.model.offer import KEYS, KINDS, Listed, Offer

ItemRoute = tuple[NamespacedOffer, str]
"""Whose it is, and what it is called there."""


View = Callable[[Offer], Offer]
"""What is to be seen of an offer."""


class Clash(Struct, frozen=True):
    """Two owners of one name."""

    kind: str
    key: str
    owner: str
    newcomer: str

    def __str__(self) -> str:
        return (
            f"{self.kind.removesuffix('s')} {self.key!r} is offered by both "
            f"{self.owner!r} and {self.newcomer!r}"
        )


class Merged:
    """An immutable whole of several shares, in their order.

    Under prefixed names (`server__tool`) nobody hides anybody else's. Under plain names, of two
    owners of a name the first is shown.
    """

    def __init__(
        self, namespaced_offers: Iterable[NamespacedOffer], *, prefixed: bool = True
    ) -> None:
        self._all = tuple(namespaced_offers)  # plain names may come from two of the same name
        self.namespaced_offers = {namespaced.server: namespaced for namespaced in self._all}
        self._prefixed = prefixed
        self._places: dict[str, dict[str, ItemRoute]] = {}
        self.duplicates: list[Clash] = []
        """The names with a second owner, of the lists that were looked at."""

    def only(self, servers: frozenset[str]) -> "Merged":
        """The part of some servers."""
        return Merged(
            namespaced
            for namespaced in self.namespaced_offers.values()
            if namespaced.server in servers
        )

    def through(self, views: Sequence[View]) -> "Merged":
        """As much of it as is to be seen through these views, as they show it."""
        whole = offer = self.offer()
        for view in views:
            offer = view(offer)
        kept: dict[str, dict[str, Listed]] = {server: {} for server in self.namespaced_offers}
        for kind in KINDS:
            found: dict[str, dict[str, bytes]] = {server: {} for server in self.namespaced_offers}
            before = dict(zip(whole.listed(kind).keys, whole.listed(kind).items, strict=True))
            for shown, raw in zip(offer.listed(kind).keys, offer.listed(kind).items, strict=True):
                place = self.routes(kind).get(shown)
                if place is not None:  # else it is none of ours
                    namespaced, key = place
                    same = before[shown] == raw
                    own = namespaced.raw(kind, key) if same else with_field(raw, KEYS[kind], key)
                    found[namespaced.server][key] = own
            for server, items in found.items():
                listed = Listed(items=tuple(items.values()), keys=tuple(items))
                if listed.keys or kind in self.namespaced_offers[server].offer.lists:
                    kept[server][kind] = listed
        made = Merged(namespaced.with_lists(kept[namespaced.server]) for namespaced in self._all)
        made.routing = self.routing  # a URI is shown as it was to the views
        return made

    @cached_property
    def tool_count(self) -> int:
        """How many tools there are in all."""
        return sum(
            len(namespaced.listed("tools").keys) for namespaced in self.namespaced_offers.values()
        )

    @cached_property
    def version(self) -> str:
        """A digest of all that is searched: the same tools have the same, in any process."""
        digest = blake2b(digest_size=16)
        for namespaced in self.namespaced_offers.values():
            digest.update(namespaced.version)
        return digest.hexdigest()

    @cached_property
    def tools(self) -> Mapping[str, ItemRoute]:
        """Where each tool is, by its exposed name."""
        return self.routes("tools")

    def tool(self, name: str) -> ItemRoute | None:
        """Where a tool is, by its exposed name."""
        return self.tools.get(name)

    def prompt(self, name: str) -> ItemRoute | None:
        """Where a prompt is, by its exposed name."""
        return self.routes("prompts").get(name)

    def resource(self, uri: str) -> tuple[str | None, str]:
        """The server and its own URI for one that a client has."""
        return self.routing.resolve(uri)

    @cached_property
    def routing(self) -> ResourceRouting:
        """Whose resource is whose."""
        return ResourceRouting(
            ServerResources(
                namespaced.server,
                namespaced.listed("resources").keys,
                namespaced.listed("templates").keys,
            )
            for namespaced in self.namespaced_offers.values()
        )

    @cached_property
    def clashes(self) -> dict[str, list[str]]:
        """By server, the resources that it and another one claim."""
        return clashes(self.routing)

    def with_ui(self) -> list[str]:
        """The exposed names of tools that need to be listed for their page to be shown."""
        return [
            name for namespaced in self.namespaced_offers.values() for name in namespaced.with_ui
        ]

    def routes(self, kind: str) -> dict[str, ItemRoute]:
        """Where each item of a list is, by what clients ask for it by."""
        found = self._places.get(kind)
        if found is None:
            found = {}
            for namespaced in self._all:
                for key, shown in self._shown(kind, namespaced):
                    owner, _ = found.setdefault(shown, (namespaced, key))
                    if owner is not namespaced:
                        self.duplicates.append(Clash(kind, shown, owner.server, namespaced.server))
            self._places[kind] = found
        return found

    def _shown(self, kind: str, namespaced: NamespacedOffer) -> Iterable[tuple[str, str]]:
        if kind in ("tools", "prompts"):
            return namespaced.names(kind).items()
        keys = namespaced.listed(kind).keys
        if not self._prefixed:
            return zip(keys, keys, strict=True)
        return [(key, self.routing.exposed_uri(namespaced.server, key)) for key in keys]

    def listed(self, kind: str, names: Sequence[str] | None = None) -> Listed:
        """A whole list, or some of it, as it is shown."""
        places = self.routes(kind)
        if names is not None:
            places = {name: places[name] for name in names if name in places}
        field = KEYS[kind]
        items = [
            namespaced.renamed(kind, key, field, shown)
            for shown, (namespaced, key) in places.items()
        ]
        return Listed(items=tuple(items), keys=tuple(places))

    def offer(self) -> Offer:
        """All of it as one."""
        offers = [namespaced.offer for namespaced in self._all]
        return Offer(
            lists={kind: self.listed(kind) for kind in KINDS},
            completions=any(offer.completions for offer in offers),
            subscriptions=any(offer.subscriptions for offer in offers),
            declared=frozenset().union(*(offer.declared for offer in offers)),
        )


def merge(offers: Iterable[tuple[str, Offer]]) -> tuple[Offer, list[Clash]]:
    """One offer of all under plain names, and every name that had a second owner."""
    merged = Merged((NamespacedOffer(name, offer) for name, offer in offers), prefixed=False)
    return merged.offer(), merged.duplicates
