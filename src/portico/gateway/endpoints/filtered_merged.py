"""The offers of a gateway's members, filtered by the views of links."""

import contextlib
from collections.abc import Callable
from functools import partial

from portico.core.catalog.merge import ADDED, Merged
from portico.core.model.context import Context
from portico.core.model.errors import NameClash
from portico.core.model.message import Request
from portico.library.chain.views import ViewFailed, ViewPending, Views, VisibleOffer


class FilteredMerged:
    """Merged offers behind the views of one chain, filtered once per merge."""

    def __init__(self, whole: Callable[[], Merged], views: Views, reserved: frozenset[str]) -> None:
        """`whole` returns the current offers, with all that views hide; `reserved` are the names of
        the meta-tools."""
        self._reserved = reserved
        self._whole = whole
        self._views = views
        self._known: tuple[Merged, VisibleOffer, Merged] | None = None
        self._failed: tuple[Merged, ViewFailed] | None = None

    @property
    def merged(self) -> Merged:
        """The visible offers; raises ViewFailed."""
        whole, known = self._whole(), self._known
        return known[2] if known is not None and known[0] is whole else self._filtered(whole)[2]

    def visible(self, request: Request, context: Context) -> VisibleOffer:
        """Return the visible offer, the same for all clients; raises ViewFailed."""
        whole, known = self._whole(), self._known
        return known[1] if known is not None and known[0] is whole else self._filtered(whole)[1]

    async def ready(self, request: Request, context: Context) -> None:
        """Return at once: the offers are merged."""

    def forget(self) -> None:
        """Filter the offers again: the view of a link has changed."""
        self._known = self._failed = None

    def check_names(self) -> None:
        """Raise NameClash if a link adds a name that exists already."""
        whole = self._whole()
        with contextlib.suppress(ViewFailed):  # reported when a client requests a list
            made = self._views.stages(whole.offer(), partial(_owner, whole), strict=True)[-1]
            for name in self._reserved.intersection(made.listed("tools").keys):
                why = f"a link adds tool {name!r}, which is a meta-tool of the gateway; rename it"
                raise NameClash("tools", name, why)

    def _filtered(self, whole: Merged) -> tuple[Merged, VisibleOffer, Merged]:
        if self._failed is not None and self._failed[0] is whole:
            raise self._failed[1]
        try:
            known = self._known = (whole, *self._apply(whole))
        except ViewFailed as failure:
            if not isinstance(failure, ViewPending):
                self._failed = (whole, failure.with_traceback(None))
            raise
        return known

    def _apply(self, whole: Merged) -> tuple[VisibleOffer, Merged]:
        def item_place(kind: str, key: str) -> tuple[str, str]:
            route = whole.routes(kind).get(key)
            return (ADDED, key) if route is None else (route[0].server, route[1])

        def uri_place(uri: str) -> tuple[str, str]:
            server, own = whole.resource(uri)
            return server or ADDED, own

        stages = self._views.stages(whole.offer(), partial(_owner, whole))
        shown = stages[-1].keep(
            tools=lambda name: name not in self._reserved
        )  # rejected at startup
        visible = VisibleOffer(stages, item_place=item_place, uri_place=uri_place)
        return visible, whole.showing(shown)


def _owner(whole: Merged, kind: str, key: str) -> str:
    """Return the owner of a name, for messages."""
    route = whole.routes(kind).get(key)
    return "another link" if route is None else repr(route[0].server)
