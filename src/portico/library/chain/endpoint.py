"""An endpoint: a chain folded around a core, as transports serve it."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from portico.core.model.context import Context
from portico.core.model.errors import INTERNAL_ERROR, McpError
from portico.core.model.message import NOTHING, Request, Response
from portico.core.model.types import (
    Answer,
    Change,
    Endpoint,
    Handler,
    Link,
    LinkedEndpoint,
    Provider,
    Report,
)
from portico.core.protocol.codec import encode, error_response
from portico.core.protocol.exact import with_field
from portico.library.chain.core import Core, responding
from portico.library.chain.endpoint_parts import CatalogSource, TaskEntrance
from portico.library.chain.entrance import Hides, entrance
from portico.library.chain.fold import CATALOG_UNKNOWN, Bind, fold, fold_links, terminus

if TYPE_CHECKING:
    from portico.core.catalog.catalog import Catalog
    from portico.library.chain.endpoint_parts import Hub
    from portico.library.chain.filtered_catalogs import FilteredOffers

_KINDS = ("tools", "resources", "prompts")


class ChainEndpoint:
    """Links around the core, the providers behind it.

    A link may also have a method `view(offer) -> Offer`, which hides, changes and adds entries. It
    is applied once per catalog, so that lists stay ready bytes. A hidden entry cannot be called:
    the chain guards each link that has a view.
    """

    def __init__(
        self,
        source: CatalogSource,
        providers: Sequence[Provider],
        links: Sequence[Link],
        report: Report,
        observe: Link | None = None,
        first: Sequence[Link] = (),
        *,
        before: Sequence[Link] = (),
        warn: Callable[[str], None] | None = None,
        tasks: TaskEntrance | None = None,
        state_key: bytes | None = None,
    ) -> None:
        """`observe` is a link outside all others, which sees failures as responses; `first` are
        Portico's own links, before those of the user; `before` are further ones, which only the
        user's links need; `warn` reports name clashes; `tasks` is the link before those of the
        user that makes calls tasks; `state_key` seals the states of links that ask."""
        self._state_key = state_key
        self._rounds: Bind | None = None
        self._whole = source
        self._providers = providers
        self._report = report
        self._observe = observe
        self._first = first
        self._before = before
        self._warn = warn or _log
        self._tasks = tasks
        self._source = source
        self._filtered: FilteredOffers | None = None
        self._links = links
        self.handle: Handler = self._fold(links, self._behind(links))
        """Answers a request; an exception is the response to this request only."""

    def relink(self, links: Sequence[Link]) -> None:
        """Replace the links. Running requests finish behind the old ones, and clients are notified
        of the lists that differ. A link that raises, or adds a name that exists, changes nothing.
        """
        filtered = self._behind(links)
        if filtered is not None:
            filtered.check_names()
        before = {hub: catalog for catalog, hub in self._source.published()}
        self.handle = self._fold(links, filtered)
        self._links = links
        self._publish_changes(before)

    def _publish_changes(self, before: "dict[Hub, Catalog]") -> None:
        for catalog, hub in self._source.published():
            old = before.get(hub)
            for kind in _KINDS if old is None else catalog.changed(old):
                hub.publish(Change(kind))

    @property
    def has_tasks(self) -> bool:
        """True if calls can become tasks."""
        return self._tasks is not None

    def use_tasks(self, tasks: TaskEntrance) -> None:
        """Let calls become tasks from now on."""
        self._tasks = tasks
        self.handle = self._fold(self._links, self._behind(self._links))

    def check_names(self) -> None:
        """Raise NameClash if a link adds a name that a known catalog has already."""
        if self._filtered is not None:
            self._filtered.check_names()

    def views_changed(self) -> None:
        """Apply all views again, and publish the lists that differ: a link knows its view now, or
        lists something else."""
        filtered = self._filtered
        if filtered is None:
            return
        before = {hub: catalog for catalog, hub in self._source.published()}
        filtered.forget()
        _use(self._whole, filtered)
        self._publish_changes(before)

    def publish(self, change: Change, request: Request, context: Context) -> None:
        """Notify the clients that share the lists of a request's client."""
        self._whole.hub(request, context).publish(change)

    def _behind(self, links: Sequence[Link]) -> "FilteredOffers | None":
        """Return the offers behind the views of links; None without views."""
        if not any(hasattr(link, "view") for link in links):
            return None
        # Few chains have views, and every start would import their modules.
        from portico.library.chain.filtered_catalogs import offers_behind
        from portico.library.chain.views import Views

        return offers_behind(self._whole, Views(links, self._report, self._warn))

    def _bind_links(self) -> Bind:
        """Let the links ask; a state of theirs is valid as long as this endpoint is."""
        if self._rounds is None:
            from portico.library.chain.link_rounds import (
                LinkRounds,  # without links, no start needs it
            )

            self._rounds = LinkRounds(self._state_key).bind
        return self._rounds

    def _fold(self, links: Sequence[Link], filtered: "FilteredOffers | None") -> Handler:
        """Fold the chain, and only then use its views: a link may raise."""
        source = self._whole if filtered is None else _source_of(self._whole, filtered)
        core = Core(source, self._providers, self._tasks)
        linked = _folded(links, core.answer, filtered, self._bind_links() if links else None)
        handler = entrance(
            source, linked, self._tasks, None if filtered is None else _hides(filtered)
        )
        if links:
            handler = fold(self._before, handler)
        core.entry = handler
        if filtered is not None or self._filtered is not None:
            _use(self._whole, filtered)
        by_uri = _by_uri(source, handler) if links else handler
        first = fold(self._first, by_uri)
        if filtered is not None:
            first = self._learned(links, filtered, first)
        handle = responding(first, self._report)
        if self._tasks is not None:
            stored = responding(linked, self._report)
            self._tasks.behind = LinkedEndpoint(
                stored if self._observe is None else self._observe(stored),
                stored,
                None if filtered is None else _hides_later(filtered),
                partial(_identity, source),
                bool(links),
            )
        self._source, self._filtered = source, filtered
        return handle if self._observe is None else self._observe(handle)

    def _learned(self, links: Sequence[Link], filtered: "FilteredOffers", next: Handler) -> Handler:
        """Let requests wait for views that are not known at once."""
        from portico.library.chain.views import learners_in, learning

        learners = learners_in(links)
        for learner in learners:
            learner.endpoints.add(self)
        return learning(filtered, next) if learners else next


def _hides(filtered: "FilteredOffers") -> Hides:
    """Return what is hidden from clients, if the catalog is known."""

    def hides(request: Request, context: Context) -> bool:
        visible = filtered.visible(request, context)
        return visible is not None and visible.hides_tool(request.name)

    return hides


def _hides_later(filtered: "FilteredOffers") -> Callable[[Request, Context], Awaitable[bool]]:
    """Return what is hidden from clients, once the catalog is known."""
    hides = _hides(filtered)

    async def hides_now(request: Request, context: Context) -> bool:
        if filtered.visible(request, context) is None:
            await filtered.ready(request, context)
        return hides(request, context)

    return hides_now


def _identity(source: CatalogSource, request: Request, context: Context) -> bytes:
    catalog = source.catalog(request, context)
    return b"" if catalog is None else catalog.identity


def _source_of(whole: CatalogSource, filtered: "FilteredOffers") -> CatalogSource:
    from portico.library.chain.filtered_catalogs import FilteredCatalogs

    return filtered if isinstance(filtered, FilteredCatalogs) else whole


def _folded(
    links: Sequence[Link],
    core: Handler,
    filtered: "FilteredOffers | None",
    rounds: Bind | None,
) -> Handler:
    if filtered is None:
        return fold_links(links, core, rounds)
    from portico.library.chain.views import guarded_fold

    return guarded_fold(links, core, filtered, rounds)


def _use(whole: CatalogSource, filtered: "FilteredOffers | None") -> None:
    from portico.library.chain.filtered_catalogs import FilteringSource

    if isinstance(whole, FilteringSource):
        whole.use(filtered)


def _log(words: str) -> None:
    import logging  # slow to import, and seldom needed

    logging.getLogger("portico").warning(words)


def _by_uri(source: CatalogSource, next: Handler) -> Handler:
    """Resolve a resource's name to its URI, so that every link guards the same thing."""

    def handle(request: Request, context: Context) -> Answer:
        if request.method != "resources/read" or request.uri or not request.name:
            return next(request, context)
        catalog = source.catalog(request, context)
        if catalog is None:
            return later(request, context)
        request.uri = catalog.uri_of(request.name, foreign=True)
        if not request.uri:
            return terminus(request)
        request.params = with_field(request.params, "uri", encode(request.uri))
        return next(request, context)

    async def later(request: Request, context: Context) -> Response:
        await source.ready(request, context)
        if source.catalog(request, context) is None:
            raise McpError(CATALOG_UNKNOWN)
        return await handle(request, context)

    return handle


class CurrentEndpoint:
    """Passes each request to the endpoint that a function returns then."""

    def __init__(self, find: Callable[[], Endpoint | None], missing: str) -> None:
        """`missing` is the error for requests while there is none."""
        self._find = find
        self._missing = missing

    def handle(self, request: Request, context: Context) -> Answer:
        """Answer a request as the current endpoint does."""
        endpoint = self._find()
        if endpoint is not None:
            return endpoint.handle(request, context)
        if not request.id:
            return NOTHING
        return error_response(request.id, INTERNAL_ERROR, self._missing)
