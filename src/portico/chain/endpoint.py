"""An endpoint: a chain folded once around a core, as transports serve it."""

from collections.abc import Callable, Sequence
from weakref import WeakKeyDictionary

from portico.catalog.catalog import Catalog
from portico.catalog.merge import View
from portico.chain.core import CATALOG_UNKNOWN, CatalogSource, Core, Hub, responding
from portico.chain.fold import fold, terminus
from portico.model.context import Context
from portico.model.errors import McpError
from portico.model.message import Request, Response
from portico.model.types import Answer, Handler, Link, Provider, Report
from portico.protocol.codec import encode
from portico.protocol.exact import with_field


class ChainEndpoint:
    """Links around the core, the providers behind it.

    A link may also have a method `view(offer) -> Offer`, which returns the part of the catalog that
    it lets through; it is applied once per catalog, so that lists stay ready bytes.
    """

    def __init__(
        self,
        source: CatalogSource,
        providers: Sequence[Provider],
        links: Sequence[Link],
        report: Report,
        observe: Link | None = None,
        first: Sequence[Link] = (),
    ) -> None:
        """`observe` is a link outside all others, which sees failures as responses; `first` are
        Portico's own links, before those of the user."""
        views = [link.view for link in reversed(links) if hasattr(link, "view")]
        self._source = filter_catalogs(source, views) if views else source
        core = Core(self._source, providers)
        core.entry = fold(links, core.answer)
        door = self._by_uri(core.entry) if links else core.entry
        handle = responding(fold(first, door), report)
        self.handle: Handler = handle if observe is None else observe(handle)
        """Answers a request; an exception is the response to this request only."""

    def _by_uri(self, next: Handler) -> Handler:
        """Resolve a resource's name to its URI, so that every link guards the same thing."""

        def handle(request: Request, context: Context) -> Answer:
            if request.method != "resources/read" or request.uri or not request.name:
                return next(request, context)
            catalog = self._source.catalog(request, context)
            if catalog is None:
                return later(request, context)
            request.uri = catalog.uri_of(request.name, foreign=True)
            if not request.uri:
                return terminus(request)
            request.params = with_field(request.params, "uri", encode(request.uri))
            return next(request, context)

        async def later(request: Request, context: Context) -> Response:
            await self._source.ready(request, context)
            if self._source.catalog(request, context) is None:
                raise McpError(CATALOG_UNKNOWN)
            return await handle(request, context)

        return handle


def filter_catalogs(source: CatalogSource, views: Sequence[View]) -> CatalogSource:
    """Return the source filtered by these views; a source with `filter_by` does it itself."""
    seen: Callable[[Sequence[View]], CatalogSource] | None = getattr(source, "filter_by", None)
    return _FilteredCatalogs(source, views) if seen is None else seen(views)


class _FilteredCatalogs:
    """A source whose catalogs are filtered by views, each once."""

    def __init__(self, source: CatalogSource, views: Sequence[View]) -> None:
        self._source = source
        self._views = views
        self._made: WeakKeyDictionary[Catalog, Catalog] = WeakKeyDictionary()
        self.ready = source.ready
        self.on_initialize = source.on_initialize

    def catalog(self, request: Request, context: Context) -> Catalog | None:
        """Return the visible part of this client's catalog."""
        whole = self._source.catalog(request, context)
        if whole is None:
            return None
        seen = self._made.get(whole)
        if seen is None:
            offer = whole.offer
            for view in self._views:
                offer = view(offer)
            seen = self._made[whole] = whole.with_offer(offer)
        return seen

    def hub(self, request: Request, context: Context) -> Hub:
        """Return the hub of the unfiltered source."""
        return self._source.hub(request, context)
