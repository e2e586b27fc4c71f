"""Links in the middle of a composition, and the handler downstream of each member."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from portico.core.catalog.merge import ItemRoute, Merged
from portico.core.model.context import Context
from portico.core.model.errors import NameClash
from portico.core.model.message import Request
from portico.core.model.methods import METHODS_WITH_TARGET
from portico.core.model.offer import KINDS, Listed, Offer
from portico.core.model.types import Answer, Handler, Link
from portico.gateway.endpoints.filtered_merged import FilteredMerged
from portico.gateway.endpoints.rewrite import reference_of
from portico.library.chain.fold import fold_links, link_name, terminus
from portico.library.chain.link_rounds import LinkRounds
from portico.library.chain.views import Views, guarded_fold


class MiddleLinks:
    """Links that only see the members after them, as one link of the whole composition."""

    def __init__(
        self,
        links: Sequence[Link],
        before: frozenset[str],
        merged: Callable[[], Merged],
        later: Handler,
        views: Views,
    ) -> None:
        """`before` are the members before the links; `later` calls the tools of those after them;
        `views` are those of the links."""
        self._links = self.links = links
        self._before = before
        self._merged = merged
        self._later = later
        self._views = views
        self._added: frozenset[str] = frozenset()
        """The names and URIs that the links added."""
        self.__name__ = ", ".join(map(link_name, links))
        if views:  # only a link with a view needs a guard
            self.view = self._view
            self.strict_view = partial(self._view, strict=True)

    def __call__(self, next: Handler) -> Handler:
        """Return the next handler behind all links, for requests to the members after them."""

        def behind_links(request: Request, context: Context) -> Answer:
            # An earlier member may have the same name.
            is_earlier = request.method == "tools/call" and self._owner(request) in self._before
            return (self._later if is_earlier else next)(request, context)

        linked = fold_links(self._links, behind_links, position=f"{len(self._before)}.")

        def handle(request: Request, context: Context) -> Answer:
            return (linked if self._sees(request) else next)(request, context)

        return handle

    def _sees(self, request: Request) -> bool:
        if request.method not in METHODS_WITH_TARGET:
            return False
        if (request.name or request.uri) in self._added:
            return True
        return self._owner(request) not in self._before

    def _owner(self, request: Request) -> str | None:
        """Return the member that owns the target of a request; None if no member does."""
        merged, method = self._merged(), request.method
        if method == "tools/call":
            return _server(merged.tool(request.name))
        if method == "prompts/get":
            return _server(merged.prompt(request.name))
        if method == "completion/complete":
            reference = reference_of(request)
            if reference.type == "ref/prompt":
                return _server(merged.prompt(reference.name))
            return merged.resource(reference.uri)[0]
        return merged.resource(request.uri)[0]

    def _view(self, offer: Offer, *, strict: bool = False) -> Offer:
        """Return the entries of the earlier members, and the others as the links show them."""
        merged = self._merged()
        parts = {kind: self._parted(merged, kind, offer.listed(kind)) for kind in KINDS}
        behind = replace(offer, lists={kind: rest for kind, (_, rest) in parts.items()})
        shown = self._views.stages(behind, partial(_owner_name, merged), strict=strict)[-1]
        added: set[str] = set()
        lists: dict[str, Listed] = {}
        for kind, (earlier, rest) in parts.items():
            listed = shown.listed(kind)
            new = set(listed.keys).difference(rest.keys)
            for key in sorted(new.intersection(earlier.keys)):
                raise NameClash(kind, key)
            added |= new
            keys, items = (*earlier.keys, *listed.keys), (*earlier.items, *listed.items)
            lists[kind] = replace(listed, keys=keys, items=items)
        self._added = frozenset(added)
        return replace(offer, lists=lists)

    def _parted(self, merged: Merged, kind: str, listed: Listed) -> tuple[Listed, Listed]:
        """Return the entries of the earlier members, and those of the others."""
        routes = merged.routes(kind)
        earlier = {key for key in listed.keys if _server(routes.get(key)) in self._before}
        return listed.filtered(earlier.__contains__), listed.filtered(
            lambda key: key not in earlier
        )


class CompositionOrder:
    """The order of a composition: its middle links, and what is downstream of each member."""

    def __init__(
        self,
        members: Sequence[str],
        links: Mapping[str, Sequence[Link]],
        whole: Callable[[], Merged],
        call: Callable[[Request, Context, ItemRoute], Answer],
        views: Callable[[Sequence[Link]], Views],
    ) -> None:
        """`links` are those between the first member and each other one; `call` calls the tool of a
        member."""
        self._members = list(members)
        self._links = links
        self._whole = whole
        self._call = call
        self._views = views
        self._parts: tuple[Merged | None, dict[frozenset[str], Merged]] = (None, {})
        """All offers, and those of some members."""
        self._downstreams: dict[str, Handler | None] = {}

    def middle_links(self) -> list[Link]:
        """Return the links between members, each in front of the members after it."""
        return self._between(self._members, 0)

    def downstream_of(self, member: str) -> Handler | None:
        """Return the handler of the tools after a member; None for the last one."""
        if member not in self._downstreams:
            self._downstreams[member] = self._make_downstream(member)
        return self._downstreams[member]

    def _make_downstream(self, member: str) -> Handler | None:
        at = self._members.index(member) + 1
        after = self._members[at:]
        if not after:
            return None
        links = self._between(after, len(self._links.get(member, ())))
        views = self._views(links)
        part = partial(self._part, frozenset(after))
        source = FilteredMerged(part, views, frozenset()) if views else None
        rounds = LinkRounds().bind if links else None
        return guarded_fold(links, partial(self._call_one_of, frozenset(after)), source, rounds)

    def _between(self, members: Sequence[str], passed: int) -> list[Link]:
        """Return the links between some members, without those already passed."""
        found: list[Link] = []
        merged = partial(self._part, frozenset(members))
        for at, member in enumerate(members):
            links = list(self._links.get(member, ()))
            if links[passed:]:
                later = partial(self._call_one_of, frozenset(members[at:]))
                before, views = frozenset(members[:at]), self._views(links[passed:])
                found.append(MiddleLinks(links[passed:], before, merged, later, views))
            passed = max(passed, len(links))
        return found

    def _call_one_of(self, members: frozenset[str], request: Request, context: Context) -> Answer:
        """Call a tool of these members, even if an earlier one has its name too."""
        place = self._part(members).tool(request.name)
        return terminus(request) if place is None else self._call(request, context, place)

    def _part(self, members: frozenset[str]) -> Merged:
        whole = self._whole()
        if self._parts[0] is not whole:
            self._parts = (whole, {})
        parts = self._parts[1]
        if members not in parts:
            everything = members >= whole.namespaced_offers.keys()
            parts[members] = whole if everything else whole.only(members)
        return parts[members]


def _server(route: ItemRoute | None) -> str | None:
    return None if route is None else route[0].server


def _owner_name(merged: Merged, kind: str, key: str) -> str:
    """Return the owner of a name, for messages."""
    return repr(_server(merged.routes(kind).get(key)))
