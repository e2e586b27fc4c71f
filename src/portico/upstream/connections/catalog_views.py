"""The catalogs of an upstream: remembered, fetched and compared."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from portico.core.catalog.catalog import Catalog, ListedTool
from portico.core.catalog.settled import settled
from portico.core.model.errors import McpError, TargetError
from portico.core.model.offer import Offer
from portico.core.model.types import Change
from portico.core.protocol.codec import encode
from portico.core.state.background import Background
from portico.core.state.hub import ChangeHub
from portico.upstream.connections.connection_pool import LEGACY, MODERN, ConnectionPool
from portico.upstream.connections.fetch_catalog import fetch_catalog
from portico.upstream.connections.handshake import modern_meta
from portico.upstream.connections.policy import UpstreamPolicy
from portico.upstream.connections.request_headers import request_headers
from portico.upstream.connections.session import UpstreamSession

if TYPE_CHECKING:
    from portico.core.catalog.history import History
    from portico.core.catalog.sanitize_offer import SanitizedItem

REFRESH_S = 1.0
"""The shortest time between two fetches, however often an upstream announces changes."""
BURST_S = 0.05
"""How long an upstream may take to announce all changes of a burst, which are fetched together."""
MAX_VIEWS = 100
"""The limit of views: clients can declare any number of capabilities."""
_MAX_INLINE_ITEMS = 500
_SAVE_S = 2.0
"""How long closing an upstream waits for its catalogs to be saved."""
FRESH_S = 10.0
"""A catalog younger than this is not fetched again for a new session."""


class Memory(Protocol):
    """The storage where offers outlive the process."""

    def load(self, key: str) -> Offer | None:
        """Return the saved offer."""
        ...

    def save(self, key: str, offer: Offer) -> bool:
        """Save an offer; False if that failed."""
        ...


class CatalogView:
    """The catalog of clients with the same era and capabilities."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.catalog: Catalog | None = None
        self.hub = ChangeHub()
        self.fetching: asyncio.Task[None] | None = None
        self.fetched: asyncio.Future[None] | None = None
        """Done when the lists that are being fetched have arrived."""
        self.saved: asyncio.Future[None] | None = None
        """The same future, while the lists have arrived and are being saved."""
        self.missed: list[str] = []
        """Why lists failed in the last fetch."""
        self.stale: UpstreamSession | None = None
        """The session that announced a change since the last fetch."""
        self.announced: set[str] = set()
        """The kinds of lists that the upstream announced as changed, to notify clients of."""

    def take_stale(self) -> UpstreamSession | None:
        """Return the session to fetch from again, if that is necessary and possible."""
        session, self.stale = self.stale, None
        return session if session is not None and not session.exchange.is_over() else None


class CatalogViews:
    """All views of one upstream."""

    def __init__(
        self,
        server: str,
        policy: UpstreamPolicy,
        pool: ConnectionPool,
        *,
        memory: Memory | None,
        key: Callable[[str], str],
        report: Callable[[str], None],
        clock: Callable[[], float],
        background: Background,
        on_fetched: Callable[[CatalogView], None],
        history: "History | None" = None,
    ) -> None:
        """`on_fetched` receives every view that was fetched; `history` holds earlier offers."""
        self.name = server
        self._policy = policy
        self._pool = pool
        self._memory = memory
        self._key = key
        self._report = report
        self._clock = clock
        self._background = background
        self._on_fetched = on_fetched
        self._history = history
        self._compare_lock = asyncio.Lock()
        self._views: dict[str, CatalogView] = {}
        self._last_number = 0
        self._saving = Background()
        """The tasks that save offers to disk."""
        self._save_lock = asyncio.Lock()

    def __iter__(self) -> Iterator[CatalogView]:
        return iter(tuple(self._views.values()))

    def __contains__(self, name: str) -> bool:
        return name in self._views

    def tool(self, name: str) -> ListedTool | None:
        """Return a tool's definition from the first view that has it."""
        for view in self._views.values():
            tool = view.catalog.tool(name) if view.catalog is not None else None
            if tool is not None:
                return tool
        return None

    def opened(self, name: str, session: UpstreamSession) -> None:
        """Refresh the view of a new session, if its catalog may be outdated."""
        view = self.get(name)
        catalog = view.catalog
        if catalog is None:
            return  # the client that opened the session fetches it
        if not catalog.confirmed or self._clock() - catalog.offer.taken > FRESH_S:
            self.fetch_catalog(view, session)

    def publish(self, change: Change) -> None:
        """Publish a change to the clients of all views."""
        for view in self._views.values():
            view.hub.publish(change)

    def get(self, name: str) -> CatalogView:
        """Return a view, with its catalog from memory where possible."""
        view = self._views.get(name)
        if view is None:
            if len(self._views) >= MAX_VIEWS:
                self._make_room()
            view = self._views[name] = CatalogView(name)
            offer = self._memory.load(self._key(name)) if self._memory is not None else None
            if offer is not None:
                if self._policy.max_items is not None:
                    offer = offer.limited(self._policy.max_items)
                era = MODERN if offer.version.modern else LEGACY
                self._pool.generation += 1
                self._pool.asks |= offer.asks
                self._pool.supports.setdefault(era, True)
                if name.startswith(era):
                    view.catalog = self._catalog(offer, confirmed=False)
                else:  # the upstream does not support the era of this view
                    self._pool.supports.setdefault(LEGACY if era == MODERN else MODERN, False)
                    right = self._views.setdefault(era, CatalogView(era))
                    right.catalog = right.catalog or self._catalog(offer, confirmed=False)
        return view

    async def forget(self, change_keys: Callable[[], None]) -> None:
        """Replace all catalogs by those that are stored under other keys; nothing that was fetched
        before is saved after that."""
        fetching = [view.fetching for view in self if view.fetching is not None]
        for task in fetching:
            task.cancel()
        if fetching:
            await asyncio.wait(fetching)
        await self._saving.wait(_SAVE_S)
        change_keys()
        before, self._views = self._views, {}
        for name, view in before.items():
            self.get(name).hub = view.hub
        self._pool.generation += 1

    def _make_room(self) -> None:
        """Drop the oldest view without a connection and without subscribers."""
        needed = {MODERN, LEGACY, *(connection.view for connection in self._pool)}
        for view in self:
            if view.name not in needed and view.fetching is None and not view.hub.is_needed:
                del self._views[view.name]
                self._pool.generation += 1  # callers that cache it look it up again
                return

    def _catalog(self, offer: Offer, *, confirmed: bool) -> Catalog:
        self._last_number += 1
        shown = offer
        sanitized: tuple[SanitizedItem, ...] = ()
        if self._policy.reveals:
            from portico.core.catalog.sanitize_offer import sanitize_offer

            shown, sanitized = sanitize_offer(offer)
        return Catalog(
            shown,
            confirmed=confirmed,
            number=self._last_number,
            clock=self._clock,
            whole=offer,
            sanitized=sanitized,
        )

    async def _confirmed(self, offer: Offer) -> Catalog:
        """Return the catalog of a new offer; a large one is built in a thread."""
        if self._policy.reveals and _is_large(offer):
            with suppress(RuntimeError):  # no thread can be started
                return await asyncio.to_thread(self._catalog, offer, confirmed=True)
        return self._catalog(offer, confirmed=True)

    async def _settled(self, view: CatalogView, offer: Offer) -> Offer:
        """Return a new offer with the order and bytes that clients know, where nothing changed."""
        names = dict.fromkeys((view.name, MODERN, LEGACY))
        views = [self._views[name] for name in names if name in self._views]
        known = [one.catalog.whole for one in views if one.catalog is not None]
        if not known and self._memory is not None:
            # Another process may have been faster.
            stored = self._memory.load(self._key(view.name))
            known = [] if stored is None else [stored]
        if _is_large(offer):
            with suppress(RuntimeError):  # no thread can be started
                return await asyncio.to_thread(settled, offer, *known)
        return settled(offer, *known)

    def changed(self, name: str, session: UpstreamSession, kind: str) -> None:
        """Fetch again after an announced change, even if a fetch is running."""
        view = self.get(name)
        view.announced.add(kind)
        if view.fetching is None:
            self.fetch_catalog(view, session, BURST_S)
        else:
            view.stale = session

    def fetch_catalog(
        self, view: CatalogView, session: UpstreamSession, delay_s: float = 0.0
    ) -> "asyncio.Future[None]":
        """Fetch all lists; the future is done when they have arrived or failed."""
        if view.fetching is None:
            view.fetched = asyncio.get_running_loop().create_future()
            view.fetching = self._background.start(self._fetch_repeatedly(view, session, delay_s))
        elif view.fetched is not None and (view.fetched.done() or view.fetched is view.saved):
            view.stale = session  # fetched again after the pause
            view.fetched = asyncio.get_running_loop().create_future()
        assert view.fetched is not None
        return view.fetched

    async def _fetch_repeatedly(
        self, view: CatalogView, session: UpstreamSession, delay_s: float
    ) -> None:
        """Fetch, and again if the lists change meanwhile, at most once a second."""
        failure: TargetError | McpError = TargetError(
            f"{self.name} ended before it returned its lists", kind="closed", server=self.name
        )
        try:
            if delay_s:
                await asyncio.sleep(delay_s)
            view.stale = None
            while True:
                fetched = view.fetched
                await self._fetch_lists(view, session)
                view.saved = None
                if fetched is not None and not fetched.done():
                    fetched.set_result(None)
                await asyncio.sleep(REFRESH_S)
                again = view.take_stale()
                if again is None:
                    return
                session = again
        except (TargetError, McpError) as error:
            failure = error
            if not session.closing:
                self._report(f"the lists of {self.name} cannot be refreshed: {error}")
        finally:
            view.fetching = None
            for waited in (view.saved, view.fetched):
                if waited is not None and not waited.done():
                    waited.set_exception(failure)
                    waited.exception()  # retrieved, since it may have no waiter
            view.saved = None

    async def _fetch_lists(self, view: CatalogView, session: UpstreamSession) -> None:
        modern, has_headers = session.modern, session.exchange.wire.has_headers
        version = session.server.version

        async def request_page(method: str, params: Mapping[str, Any]) -> bytes:
            sent = dict(params)
            headers: dict[str, str] = {}
            if modern:
                sent["_meta"] = modern_meta(version, self._policy.info, self._pool.declared)
                if has_headers:
                    headers = request_headers(method, sent, version)
            timeout = self._policy.limits.list_s
            return await session.request(method, encode(sent), timeout=timeout, headers=headers)

        before = view.catalog
        missed: list[str] = []
        # A later announcement may be about a change that these lists do not contain yet.
        announced, view.announced = view.announced, set()
        try:
            offer = await fetch_catalog(
                request_page,
                self.name,
                session.server,
                now=self._clock(),
                before=before.whole if before is not None else None,
                has_headers=modern and has_headers,
                max_items=self._policy.max_items,
                report=self._report,
                missed=missed.append,
            )
        except BaseException:
            view.announced |= announced
            raise
        offer = replace(offer, asks=self._pool.asks)
        for why in missed:
            self._report(why)
        offer = await self._settled(view, offer)
        catalog = await self._confirmed(offer)
        view.catalog, view.missed = catalog, missed
        # A server's own announcement is forwarded even if its list compares equal.
        changed = catalog.changed(before) if before is not None else []
        view.announced.difference_update(changed)  # later ones were about the same change
        for kind in dict.fromkeys((*changed, *sorted(announced))):
            view.hub.publish(Change(kind))
        self._on_fetched(view)
        is_same = before is not None and before.confirmed and offer.same(before.whole)
        if self._history is not None and (not is_same or self._history.is_due(view.name)):
            self._background.start(self._compare(self._history, view.name, offer))
        if self._memory is not None and not is_same:
            view.saved = view.fetched  # a later request needs a later fetch
            await self._remember(view, offer)

    def save(self) -> None:
        """Save the known offers with what was found out since: its questions and its eras."""
        for view in self:
            if view.catalog is not None and self._memory is not None:
                self._saving.start(self._write(self._memory, view, view.catalog.whole))

    async def _compare(self, history: "History", view: str, offer: Offer) -> None:
        """Report the definitions that changed since they were first seen."""
        async with self._compare_lock:
            try:
                changes = await asyncio.to_thread(history.compare, view, offer)
            except RuntimeError as error:  # no thread can be started
                self._report(f"changes to {self.name} are not tracked: {error}")
                return
        for line in history.lines(self.name, changes):
            self._report(line)

    async def _remember(self, view: CatalogView, offer: Offer) -> None:
        assert self._memory is not None
        # Closing the upstream now must not lose the offer.
        await asyncio.shield(self._saving.start(self._write(self._memory, view, offer)))

    async def _write(self, memory: Memory, view: CatalogView, offer: Offer) -> None:
        """Save an offer after those before it, with the questions known by then."""
        era = MODERN if offer.version.modern else LEGACY
        names = [view.name]
        # Under the other era's key too, so that the next start knows which one is supported.
        other = LEGACY if era == MODERN else MODERN
        if self._pool.supports.get(other) is False:
            names.append(other)
        keys = [self._key(name) for name in names]
        async with self._save_lock:
            offer = replace(offer, asks=self._pool.asks)
            try:
                await asyncio.to_thread(_save, memory, keys, offer)
            except RuntimeError as error:  # no thread can be started
                self._report(f"the catalog of {self.name} is not saved: {error}")

    async def close(self) -> None:
        """Wait a limited time until all offers are saved, then release the catalogs."""
        await self._saving.wait(_SAVE_S)
        for view in self._views.values():
            view.catalog = None


def _is_large(offer: Offer) -> bool:
    return sum(len(listed.keys) for listed in offer.lists.values()) > _MAX_INLINE_ITEMS


def _save(memory: Memory, keys: Sequence[str], offer: Offer) -> None:
    for key in keys:
        memory.save(key, offer)
