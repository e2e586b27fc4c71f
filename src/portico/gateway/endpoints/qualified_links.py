"""The gateway's links at the endpoint of a single server.

A link sees a tool as `server__tool` at every endpoint. So names are qualified before the links, and
made the server's own again behind them.
"""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from portico.core.catalog.exposed_names import SEPARATOR
from portico.core.catalog.merge import Merged
from portico.core.catalog.namespaced import NamespacedOffer, with_field
from portico.core.model.context import Context
from portico.core.model.message import Request
from portico.core.model.offer import EMPTY_LIST, KEYS, Listed, Offer
from portico.core.model.types import Answer, Handler, Link
from portico.core.protocol.request_target import with_target
from portico.gateway.endpoints.rewrite import reference_of
from portico.library.chain.fold import fold_links, terminus
from portico.library.chain.views import Views


class QualifiedLinks:
    """The links of a gateway as one link, which sees a server's offer under qualified names."""

    def __init__(
        self,
        server: str,
        links: Sequence[Link],
        merged: Callable[[], Merged],
        name_limit: int,
        views: Views,
    ) -> None:
        """`merged` returns the offers of all servers, `views` are those of the links."""
        self._server = server
        self._links = self.links = links
        self._merged = merged
        self._limit = name_limit
        self._views = views
        if views:
            self.view = self._view  # only a link with a view needs a guard

    def __call__(self, next: Handler) -> Handler:
        """Return the next handler behind all links."""

        def behind_links(request: Request, context: Context) -> Answer:
            own = self._renamed(request, self._own_name, self._own_uri)
            return terminus(request) if own is None else next(own, context)

        links = fold_links(self._links, behind_links, position="gateway.")

        def before_links(request: Request, context: Context) -> Answer:
            shown = self._renamed(request, self._shown_name, self._shown_uri)
            assert shown is not None
            return links(shown, context)

        return before_links

    def _view(self, offer: Offer) -> Offer:
        """Return the visible part of the server's offer, and the entries that links added under
        names of this server."""
        here = Merged([NamespacedOffer(self._server, offer, self._limit)])
        here.routing = self._merged().routing  # so that views see the gateway's URIs
        stages = self._views.stages(here.offer(), lambda kind, key: repr(self._server))
        if stages[-1] is stages[0]:
            return offer  # with all fields of its lists
        shown = here.showing(stages[-1])
        lists = dict(shown.namespaced_offers[self._server].offer.lists)
        for kind in ("tools", "prompts"):
            own = [] if shown.added is None else self._own_entries(kind, shown.added.listed(kind))
            if own:
                known = lists.get(kind, EMPTY_LIST)
                keys, items = zip(*own, strict=True)
                lists[kind] = replace(
                    known, keys=(*known.keys, *keys), items=(*known.items, *items)
                )
        return replace(offer, lists=lists)

    def _own_entries(self, kind: str, added: Listed) -> list[tuple[str, bytes]]:
        """Return the added entries that belong to this server, under its own names."""
        prefix = f"{self._server}{SEPARATOR}"
        pairs = zip(added.keys, added.items, strict=True)
        own = [(key.removeprefix(prefix), raw) for key, raw in pairs if key.startswith(prefix)]
        return [(key, with_field(raw, KEYS[kind], key)) for key, raw in own]

    def _renamed(
        self,
        request: Request,
        name: Callable[[str, str], str | None],
        uri: Callable[[str], str | None],
    ) -> Request | None:
        """Return the request under another name; None if there is no such name."""
        method = request.method
        key, now = "name", request.name
        if method == "completion/complete":
            reference = reference_of(request)
            is_prompt = reference.type == "ref/prompt"
            key, now = ("name", reference.name) if is_prompt else ("uri", reference.uri)
        elif method.startswith("resources/"):
            key, now = "uri", request.uri
        elif method not in ("tools/call", "prompts/get"):
            return request
        if not now:
            return request  # it names nothing, and the server rejects it
        if key == "uri":
            other = uri(now)
        else:
            other = name("tools" if method == "tools/call" else "prompts", now)
        return None if other is None else with_target(request, key, other)

    def _shown_name(self, kind: str, name: str) -> str:
        namespaced = self._merged().namespaced_offers.get(self._server)
        known = None if namespaced is None else namespaced.names(kind).get(name)
        return known or f"{self._server}{SEPARATOR}{name}"

    def _own_name(self, kind: str, shown: str) -> str | None:
        place = self._merged().routes(kind).get(shown)
        if place is not None:
            return place[1] if place[0].server == self._server else None
        server, _, name = shown.partition(SEPARATOR)
        return name if server == self._server else None

    def _shown_uri(self, uri: str) -> str:
        return self._merged().routing.exposed_uri(self._server, uri)

    def _own_uri(self, shown: str) -> str | None:
        server, uri = self._merged().resource(shown)
        return uri if server in (None, self._server) else None
