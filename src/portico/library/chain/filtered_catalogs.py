"""A source of catalogs that the views of links filter, each catalog once."""

from contextlib import suppress
from typing import Any, Protocol, runtime_checkable
from weakref import ReferenceType, WeakKeyDictionary, ref

import msgspec

from portico.core.catalog.catalog import Catalog
from portico.core.model.context import Context
from portico.core.model.message import Request
from portico.library.chain.endpoint_parts import CatalogSource, Hub
from portico.library.chain.views import (
    UNLEARNED_S,
    Owner,
    ViewFailed,
    ViewPending,
    Views,
    VisibleOffer,
    VisibleSource,
)

Filtered = tuple[VisibleOffer, Catalog]


class FilteredOffers(VisibleSource, Protocol):
    """The catalogs of a source behind views."""

    def check_names(self) -> None:
        """Raise NameClash if a link adds a name that a known catalog has already."""
        ...

    def forget(self) -> None:
        """Filter every catalog again: the view of a link has changed."""
        ...


@runtime_checkable
class FilteringSource(CatalogSource, Protocol):
    """A source that filters its offers itself, and publishes its changed lists."""

    def filtered(self, views: Views) -> Any:
        """Return its offers behind views, as FilteredOffers."""
        ...

    def use(self, filtered: Any) -> None:
        """Show these offers from now on, or all if None; publish the lists that differ."""
        ...


def offers_behind(source: CatalogSource, views: Views) -> FilteredOffers:
    """Return the offers of a source behind views."""
    if isinstance(source, FilteringSource):
        filtered: FilteredOffers = source.filtered(views)
        return filtered
    return FilteredCatalogs(source, views)


class FilteredCatalogs:
    """The catalogs of another source behind views."""

    def __init__(self, source: CatalogSource, views: Views) -> None:
        self._source = source
        self._views = views
        self._made: WeakKeyDictionary[Catalog, Filtered | ViewFailed] = WeakKeyDictionary()
        self._last: tuple[ReferenceType[Catalog], Filtered] | None = None
        """The catalog of the last request: a lookup in the dictionary is slow."""
        self._unlearned: WeakKeyDictionary[Catalog, Catalog] = WeakKeyDictionary()
        """By whole catalog, the one without entries that clients saw until its views were known."""
        self._declares_all = False
        """True if a client may have seen one of these, which declares every kind of list."""
        self.hub = source.hub
        self.on_initialize = source.on_initialize

    def catalog(self, request: Request, context: Context) -> Catalog | None:
        """Return the visible part of this client's catalog; None until it is known; raises
        ViewFailed. Introductions and lists do not wait for it forever: they get one without
        entries."""
        whole = self._source.catalog(request, context)
        if whole is None:
            return None
        try:
            return self._filtered(whole)[1]
        except ViewPending:
            if request.method not in UNLEARNED_S:
                return None
            self._declares_all = True
            return self._unlearned.setdefault(whole, whole.without_entries())

    async def ready(self, request: Request, context: Context) -> None:
        """Wait until this client's catalog and all views of it are known."""
        await self._source.ready(request, context)
        try:
            self.visible(request, context)
        except ViewPending as pending:
            await pending.wait()

    def visible(self, request: Request, context: Context) -> VisibleOffer | None:
        """Return the visible offer of this client; None until it is known; raises ViewFailed."""
        whole = self._source.catalog(request, context)
        return None if whole is None else self._filtered(whole)[0]

    def published(self) -> list[tuple[Catalog, Hub]]:
        """Return the visible part of each known catalog, with its hub."""
        found: list[tuple[Catalog, Hub]] = []
        for whole, hub in self._source.published():
            with suppress(ViewFailed):  # its clients get an error
                found.append((self._unlearned.get(whole) or self._filtered(whole)[1], hub))
        return found

    def check_names(self) -> None:
        """Raise NameClash if a link adds a name that a known catalog has already."""
        for whole, _ in self._source.published():
            with suppress(ViewFailed):  # reported when a client requests a list
                self._views.stages(whole.offer, _owner(whole), strict=True)

    def forget(self) -> None:
        """Filter every catalog again: the view of a link has changed."""
        self._made.clear()
        self._unlearned.clear()
        self._last = None

    def _filtered(self, whole: Catalog) -> Filtered:
        last = self._last
        if last is not None and last[0]() is whole:
            return last[1]
        made = self._made.get(whole)
        if made is None:
            made = self._make(whole)
            if not isinstance(made, ViewPending):
                self._made[whole] = made
        if isinstance(made, ViewFailed):
            raise made
        self._last = (ref(whole), made)
        return made

    def _make(self, whole: Catalog) -> Filtered | ViewFailed:
        try:
            stages = self._views.stages(whole.offer, _owner(whole))
        except ViewFailed as failure:
            return failure.with_traceback(None)
        shown = stages[-1].declaring_all() if self._declares_all else stages[-1]
        return VisibleOffer(stages), whole.with_offer(shown)


class _Identity(msgspec.Struct):
    name: str = ""


def _owner(catalog: Catalog) -> Owner:
    """Return the owner of all entries of a catalog, for messages."""
    try:
        name = repr(msgspec.json.decode(catalog.identity, type=_Identity).name)
    except msgspec.DecodeError:
        name = "the server"
    return lambda kind, key: name
