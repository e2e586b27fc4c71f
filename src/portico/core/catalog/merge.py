"""The offers of several providers as one, and the route of each item to its provider."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING

from msgspec import Struct

from portico.core.catalog.namespaced import NamespacedOffer, with_field
from portico.core.catalog.ui_pages import with_page_uris
from portico.core.model.offer import KEYS, KINDS, Listed, Offer

if TYPE_CHECKING:
    from portico.core.catalog.resource_routing import ResourceRouting

ItemRoute = tuple[NamespacedOffer, str]
"""The offer that has an item, and the item's own key there."""
Owners = Mapping[str, Mapping[str, str]]
"""By kind, the server of each exposed name."""
ADDED = ""
"""The server of the entries that links added: none."""


class Clash(Struct, frozen=True):
    """A name that two providers offer."""

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
    """Several offers merged in order; immutable.

    With prefixed names (`server__tool`) names never clash. With plain names, the first owner of
    a name is exposed.
    """

    def __init__(
        self,
        namespaced_offers: Iterable[NamespacedOffer],
        *,
        prefixed: bool = True,
        owners: Owners | None = None,
    ) -> None:
        """`owners` keep their names, even if an earlier offer now has one of them too."""
        self._offers = tuple(namespaced_offers)  # with plain names, two may have the same server
        self._owners = owners or {}
        self.namespaced_offers = {namespaced.server: namespaced for namespaced in self._offers}
        self._prefixed = prefixed
        self._routes: dict[str, dict[str, ItemRoute]] = {}
        self._shown: dict[NamespacedOffer, NamespacedOffer] = {}
        self.duplicates: list[Clash] = []
        """The names with a second owner, in the lists built so far."""

    def only(self, servers: frozenset[str]) -> "Merged":
        """Return the part of these servers."""
        chosen = [
            namespaced
            for namespaced in self.namespaced_offers.values()
            if namespaced.server in servers
        ]
        return Merged(chosen, prefixed=self._prefixed, owners=self._owners)

    def showing(self, offer: Offer) -> "Merged":
        """Return these offers as the views of links have made them: with other definitions, without
        the hidden entries, and with those that a link added, which belong to no server."""
        whole = self.offer()
        kept: dict[str, dict[str, Listed]] = {server: {} for server in self.namespaced_offers}
        added: dict[str, Listed] = {}
        for kind in KINDS:
            found: dict[str, dict[str, bytes]] = {server: {} for server in self.namespaced_offers}
            new: dict[str, bytes] = {}
            before = dict(zip(whole.listed(kind).keys, whole.listed(kind).items, strict=True))
            for exposed, raw in zip(offer.listed(kind).keys, offer.listed(kind).items, strict=True):
                route = self.routes(kind).get(exposed)
                if route is None:
                    new[exposed] = raw
                    continue
                namespaced, key = route
                same = before[exposed] == raw
                own = namespaced.raw(kind, key)
                if not same:
                    own = with_field(raw, KEYS[kind], key)
                    own = with_page_uris(own, self._own_uri) if kind == "tools" else own
                found[namespaced.server][key] = own
            for server, items in found.items():
                if items or kind in self.namespaced_offers[server].offer.lists:
                    kept[server][kind] = _listed(items)
            if new:
                added[kind] = _listed(new)
        offers = [namespaced.with_lists(kept[namespaced.server]) for namespaced in self._offers]
        if added:
            offers.append(NamespacedOffer(ADDED, Offer(lists=added)))
        merged = Merged(offers, prefixed=self._prefixed)
        merged.routing = self.routing  # URIs stay as the views saw them
        return merged

    def adding_tools(self, tools: Mapping[str, bytes]) -> "Merged":
        """Return these offers and definitions of tools that belong to no server."""
        added = NamespacedOffer(ADDED, Offer(lists={"tools": _listed(tools)}))
        return Merged([*self._offers, added], prefixed=self._prefixed, owners=self._owners)

    @property
    def added(self) -> NamespacedOffer | None:
        """The entries that links added, under plain names; None if there are none."""
        return self.namespaced_offers.get(ADDED)

    @cached_property
    def tool_count(self) -> int:
        """The number of tools."""
        return sum(
            len(namespaced.listed("tools").keys) for namespaced in self.namespaced_offers.values()
        )

    @cached_property
    def version(self) -> str:
        """A digest of all tools, which is the same in every process."""
        digest = blake2b(digest_size=16)
        for namespaced in self.namespaced_offers.values():
            digest.update(namespaced.version)
        return digest.hexdigest()

    @cached_property
    def tools(self) -> Mapping[str, ItemRoute]:
        """The route of each tool, by its exposed name."""
        return self.routes("tools")

    def tool(self, name: str) -> ItemRoute | None:
        """Return the route of a tool by its exposed name."""
        return self.tools.get(name)

    def prompt(self, name: str) -> ItemRoute | None:
        """Return the route of a prompt by its exposed name."""
        return self.routes("prompts").get(name)

    def resource(self, uri: str) -> tuple[str | None, str]:
        """Return the server of an exposed URI, and the URI there."""
        return self.routing.resolve(uri)

    def shown(self, namespaced: NamespacedOffer) -> NamespacedOffer:
        """Return an offer with the pages of its tools under their exposed URIs."""
        if not namespaced.pages:
            return namespaced
        found = self._shown.get(namespaced)
        if found is None:
            server, exposed = namespaced.server, self.routing.exposed_uri
            found = namespaced.with_pages(lambda uri: exposed(server, uri))
            self._shown[namespaced] = found
        return found

    def _own_uri(self, exposed: str) -> str:
        return self.routing.resolve(exposed)[1]

    @cached_property
    def routing(self) -> "ResourceRouting":
        """The routing of URIs to servers."""
        # A server of its own routes no URIs, and need not import this.
        from portico.core.catalog.resource_routing import ResourceRouting, ServerResources

        return ResourceRouting(
            ServerResources(
                namespaced.server,
                namespaced.listed("resources").keys,
                namespaced.listed("templates").keys,
                namespaced.pages,
            )
            for namespaced in self.namespaced_offers.values()
        )

    @cached_property
    def clashes(self) -> dict[str, list[str]]:
        """By server, messages on the resources that another server claims too."""
        from portico.core.catalog.clashes import clashes

        return clashes(self.routing)

    def with_ui(self) -> list[str]:
        """Return the exposed names of tools that must be listed because they have a UI."""
        return [
            name for namespaced in self.namespaced_offers.values() for name in namespaced.with_ui
        ]

    def routes(self, kind: str) -> dict[str, ItemRoute]:
        """Return the route of each item of a list, by its exposed name or URI."""
        found = self._routes.get(kind)
        if found is None:
            found = {}
            owners = self._owners.get(kind, {})
            for namespaced in self._offers:
                for key, exposed in self._exposed(kind, namespaced):
                    owner, _ = found.setdefault(exposed, (namespaced, key))
                    if owner is not namespaced:
                        newcomer = namespaced
                        if owners.get(exposed) == namespaced.server:
                            found[exposed], newcomer = (namespaced, key), owner
                            owner = namespaced
                        self.duplicates.append(Clash(kind, exposed, owner.server, newcomer.server))
            self._routes[kind] = found
        return found

    def all_duplicates(self) -> Sequence[Clash]:
        """Return the names with a second owner, in all lists."""
        for kind in KINDS:
            self.routes(kind)
        return self.duplicates

    def owners(self) -> Owners:
        """Return the server of each exposed name."""
        return {
            kind: {exposed: place[0].server for exposed, place in self.routes(kind).items()}
            for kind in KINDS
        }

    def _exposed(self, kind: str, namespaced: NamespacedOffer) -> Iterable[tuple[str, str]]:
        if kind in ("tools", "prompts"):
            return namespaced.names(kind).items()
        keys = namespaced.listed(kind).keys
        if not self._prefixed or namespaced.server == ADDED:
            return zip(keys, keys, strict=True)
        return [(key, self.routing.exposed_uri(namespaced.server, key)) for key in keys]

    def listed(self, kind: str, names: Sequence[str] | None = None) -> Listed:
        """Return a list, or some of its items, as clients see it."""
        routes = self.routes(kind)
        if names is not None:
            routes = {name: routes[name] for name in names if name in routes}
        field = KEYS[kind]
        items = [
            self.shown(namespaced).renamed(kind, key, field, exposed)
            for exposed, (namespaced, key) in routes.items()
        ]
        return Listed(items=tuple(items), keys=tuple(routes))

    def offer(self) -> Offer:
        """Return all offers as one."""
        offers = [namespaced.offer for namespaced in self._offers]
        return Offer(
            lists={kind: self.listed(kind) for kind in KINDS},
            completions=any(offer.completions for offer in offers),
            subscriptions=any(offer.subscriptions for offer in offers),
            declared=frozenset().union(*(offer.declared for offer in offers)),
        )


def merge(offers: Iterable[tuple[str, Offer]]) -> tuple[Offer, list[Clash]]:
    """Merge offers under plain names; return the result and the names with a second owner."""
    merged = Merged((NamespacedOffer(name, offer) for name, offer in offers), prefixed=False)
    return merged.offer(), merged.duplicates


def _listed(items: Mapping[str, bytes]) -> Listed:
    return Listed(items=tuple(items.values()), keys=tuple(items))
