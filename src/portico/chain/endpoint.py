"""One doorway: a chain folded once around a core, as transports serve it."""

from collections.abc import Callable, Sequence
from typing import Protocol

from portico.catalog.catalog import Catalog, Identity
from portico.chain.core import Core, Hub, respond
from portico.chain.fold import first_owner, fold
from portico.model.context import Context
from portico.model.message import Request
from portico.model.offer import Offer
from portico.model.types import Answer, Link, Provider

Report = Callable[[Request, BaseException], None]


class Shelf(Protocol):
    """Where the current catalog is taken from."""

    identity: Identity

    def catalog(self) -> Catalog:
        """The snapshot of now."""
        ...


class ChainEndpoint:
    """Links around the core, the providers behind it.

    A link may also have a method `view(offer) -> Offer`, which says what of the catalog is to be
    seen through it; it is applied once per catalog, so that lists stay ready bytes.
    """

    def __init__(
        self,
        shelf: Shelf,
        providers: Sequence[Provider],
        links: Sequence[Link],
        hub: Hub,
        report: Report,
    ) -> None:
        self._shelf = shelf
        self._report = report
        self._views: list[Callable[[Offer], Offer]] = [
            link.view for link in reversed(links) if hasattr(link, "view")
        ]
        self._seen: tuple[Catalog, Catalog] | None = None
        self._core = Core(self.catalog, first_owner(providers), hub)
        self._handler = self._core.door = fold(links, self._core.answer)

    def catalog(self) -> Catalog:
        """The snapshot of now, as it is seen through the links."""
        current = self._shelf.catalog()
        if not self._views:
            return current
        if self._seen is None or self._seen[0] is not current:
            offer = current.offer
            for view in self._views:
                offer = view(offer)
            self._seen = (current, Catalog(offer, self._shelf.identity, number=current.number))
        return self._seen[1]

    def handle(self, request: Request, context: Context) -> Answer:
        """The answer; whatever goes wrong is the answer to this request only."""
        if request.method == "resources/read" and not request.uri and request.name:
            # Known by its URI from here on, so that every link guards the same thing.
            request.uri = self.catalog().uri_of(request.name)
        return respond(self._handler, request, context, self._report)
