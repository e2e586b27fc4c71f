"""One upstream as Portico's clients see it: always available, whatever its processes do."""

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from msgspec.structs import replace

from portico.core.catalog.catalog import Catalog
from portico.core.model.context import Context
from portico.core.model.errors import McpError, TargetError
from portico.core.model.message import Request, Response
from portico.core.model.methods import LIST_KINDS, LISTS, MethodKind
from portico.core.model.offer import Offer
from portico.core.model.session import Session
from portico.core.model.types import Answer, Change
from portico.core.model.version import Version
from portico.core.protocol.codec import encode
from portico.core.protocol.eras import members, with_capabilities
from portico.core.state.background import Background
from portico.core.state.hub import ChangeHub
from portico.upstream.auth.login_state import LOGIN_STATE
from portico.upstream.connections.backoff import CircuitBreaker
from portico.upstream.connections.caller import Caller, Callers, without_questions
from portico.upstream.connections.catalog_views import CatalogView, CatalogViews, Memory
from portico.upstream.connections.connection import UpstreamConnection
from portico.upstream.connections.connection_pool import LEGACY, MODERN, ConnectionPool
from portico.upstream.connections.direct_call import as_mcp_error
from portico.upstream.connections.installs import INSTALLING
from portico.upstream.connections.policy import UpstreamPolicy
from portico.upstream.connections.relay import FinishTask, Relay
from portico.upstream.connections.session import UpstreamSession, progress_token
from portico.upstream.process.family import is_below_agent
from portico.upstream.rpc.rpc_error import ServerError
from portico.upstream.wires.credentials import CallLinks, LoginAccount, login_of
from portico.upstream.wires.wire import LOGIN, Address

if TYPE_CHECKING:
    from portico.core.catalog.history import History

_PROGRESS = "notifications/progress"
_ROOTS_CHANGED = "notifications/roots/list_changed"
_CALL, _STATIC = MethodKind.CALL, MethodKind.STATIC  # members of an enum are slow to look up


class Upstream:
    """Serves one upstream: lists from memory, everything else over its connections."""

    def __init__(
        self,
        address: Address,
        policy: UpstreamPolicy,
        *,
        memory: Memory | None = None,
        key: Callable[[str], str] = lambda view: view,
        report: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
        history: "History | None" = None,
    ) -> None:
        """`key` names a view in the memory; `report` receives messages for the operator;
        `history` holds earlier offers."""
        self.name = address.name
        self.policy = policy
        self.login = login_of(address)
        """The login that its calls use, if it is at a URL."""
        self._changing = asyncio.Lock()
        self._report = report
        self._history = history
        self._breaker = CircuitBreaker(self.name, policy.backoff, _now)
        self._callers = Callers(policy.may_ask)
        self._pool = ConnectionPool(address, policy, self._breaker, self._callers, self, self)
        self._background = Background()
        self._views = CatalogViews(
            self.name,
            policy,
            self._pool,
            memory=memory,
            key=key,
            report=report,
            clock=clock,
            background=self._background,
            on_fetched=self._catalog_fetched,
            history=history,
        )
        self._relay = Relay(
            self.name, policy, self._pool, self._breaker, self._views.tool, self.asked
        )
        self._links: CallLinks | None = None
        if self.login is not None:
            self.login.on_changed = self._on_login_changed
            self._relay.login_missing = self._login_missing
        self._subscribers: WeakSet[Session] = WeakSet()
        self._watchers: list[Callable[[Change], None]] = []
        self.warms = False
        """Open a session as soon as a client initializes."""
        self.lost: Callable[[McpError], None] | None = None
        """Called if there is no catalog for a client that initializes."""
        self.starts = 0
        """Sessions started so far, including those of closed connections."""

    def finish_tasks(self, finish: FinishTask) -> None:
        """Let this function wait for tasks of the upstream that were not requested."""
        self._relay.finish_task = finish

    # Catalogs.

    def view(self, request: Request, context: Context) -> CatalogView:
        """Return the view of this client, from memory where possible."""
        modern = request.version.modern
        caller = self._callers.of(request, context)
        generation = self._pool.generation
        known = caller.view
        if known is not None and known[0] == generation and known[1] == modern:
            view: CatalogView = known[2]
            return view
        self._views.get(self._pool.view(caller, modern))
        # The remembered offer may be of the other era, which selects another view.
        view = self._views.get(self._pool.view(caller, modern))
        caller.view = (self._pool.generation, modern, view)
        return view

    def catalog(self, request: Request, context: Context) -> Catalog | None:
        """Return the catalog of this client; None until it is known."""
        known = self._callers.of(request, context).view
        if known is None or known[0] != self._pool.generation or known[1] != request.version.modern:
            return self.view(request, context).catalog
        view: CatalogView = known[2]
        return view.catalog

    def hub(self, request: Request, context: Context) -> ChangeHub:
        """Return the hub that publishes changes to this client's catalog."""
        return self.view(request, context).hub

    def published(self) -> list[tuple[Catalog, ChangeHub]]:
        """Return the catalogs that are known, each with the hub of its clients."""
        self.offered()  # reads those from memory
        return [(view.catalog, view.hub) for view in self._views if view.catalog is not None]

    async def ready(self, request: Request, context: Context) -> None:
        """Make sure that there is a catalog; start the upstream if necessary."""
        if self.view(request, context).catalog is not None:
            return
        try:
            await self._ready(request, context)
        except McpError as error:
            if self.lost is not None and request.method == "initialize":
                self.lost(error)
            raise

    async def _ready(self, request: Request, context: Context) -> None:
        try:
            is_trial = self._breaker.check()
            try:
                view = await self._open_and_fetch(request, context)
                while view is None:  # an installer may take minutes: the client decides how many
                    view = await self._open_and_fetch(request, context)
            finally:
                if is_trial:
                    self._breaker.cancel_trial()
        except TargetError as error:
            raise as_mcp_error(error) from None
        if view.catalog is None:
            raise McpError(f"{self.name} did not return its lists")

    def on_initialize(self, request: Request, context: Context) -> None:
        """Open a session early for a legacy client, if `warms` is set."""
        if self.warms:
            caller = self._callers.of(request, context)
            self._background.start(self._warm(caller, request.version.modern))

    async def _open_and_fetch(self, request: Request, context: Context) -> CatalogView | None:
        """Return the fetched view; None while the upstream is being installed."""
        caller = self._callers.of(request, context)
        try:
            connection = await self._pool.begin_call(caller, request.version.modern)
        except TargetError as error:
            if error.kind == INSTALLING:
                return None
            raise
        answered = False
        try:
            session = await connection.session()
            # The upstream may be of another era than expected, which selects another view.
            view = self.view(request, context)
            if view.catalog is None:
                await asyncio.shield(self._views.fetch_catalog(view, session))
            answered = view.catalog is not None
        finally:
            connection.end(answered)
            self._pool.release(connection)
        return view

    def offer(self) -> Offer:
        """Return the offer that all clients share."""
        catalog = self.offered()
        return Offer() if catalog is None else catalog.offer

    def offered(self) -> Catalog | None:
        """Return the catalog that all clients share; None if it was never fetched."""
        if self._views.get(LEGACY).catalog is None and not self._pool.supports.get(MODERN):
            self._views.get(MODERN)
        # That of the same era each time, so that nothing changes only because both are in use.
        known = [self._views.get(era).catalog for era in (LEGACY, MODERN) if era in self._views]
        found = [catalog for catalog in known if catalog is not None]
        return max(found, key=lambda catalog: catalog.confirmed, default=None)

    async def fetch_catalog(self) -> None:
        """Fetch the catalog that all clients share; raises McpError or TargetError."""
        connection = self._pool.shared(self._pool.era(modern=False))
        try:
            await self._fetch_catalog(connection)
        finally:
            self._pool.release(connection)

    async def _fetch_catalog(self, connection: UpstreamConnection) -> CatalogView:
        connection.begin()
        answered = False
        try:
            session = await connection.session()
            view = self._views.get(connection.view)
            await asyncio.shield(self._views.fetch_catalog(view, session))
            answered = True
        finally:
            connection.end(answered)
        return view

    def watch(self, changed: Callable[[Change], None]) -> None:
        """Call `changed` when all lists were fetched again (a change without a kind), and when a
        resource has changed."""
        self._watchers.append(changed)

    def _catalog_fetched(self, view: CatalogView) -> None:
        if self.login is not None:
            self.login.accepted()
        if view.name in (MODERN, LEGACY) or self.offered() is None:
            self._notify_watchers(Change(""))

    def _notify_watchers(self, change: Change) -> None:
        for changed in self._watchers:
            changed(change)

    async def refresh(self) -> None:
        """Fetch all lists again over every open session, opening one if there is none; raises
        TargetError, and McpError if a list fails."""
        connections = [
            connection for connection in self._pool if connection.open_session is not None
        ]
        missed: list[str] = []
        for connection in connections or [self._pool.shared(self._pool.era(MODERN in self._views))]:
            missed += (await self._fetch_catalog(connection)).missed
        if missed:
            raise McpError("; ".join(missed))

    async def _warm(self, caller: Caller, modern: bool) -> None:
        try:
            connection = self._pool.acquire(caller, modern)
            try:
                await connection.session()
            finally:
                self._pool.release(connection)
        except TargetError as error:
            self._report(str(error))

    # Requests of clients.

    def provide(self, request: Request, context: Context) -> Answer:
        """Return the upstream's response; awaiting it raises McpError if there is none."""
        meaning = request.meaning
        if meaning is None:
            return self.relay(request, context)
        if meaning.kind is _STATIC:
            return self._unlisted(request, context)
        if meaning.kind is not _CALL:
            return self.relay(request, context)
        if not self.policy.may_ask:
            request = _strip_questions(request)
        caller = self._callers.of(request, context)
        route = self._relay.route(caller, request.version.modern)
        direct = None if route is None else self._relay.direct_call(route, caller, request, context)
        return self.relay(request, context) if direct is None else direct

    async def _unlisted(self, request: Request, context: Context) -> Response:
        """Return a list that is not in the catalog, as the upstream sends it."""
        response = await self.relay(request, context)
        if not response.result or not self.policy.reveals:
            return response
        from portico.core.catalog.sanitize_offer import sanitize_page

        kind = LISTS[request.method]
        return replace(
            response, result=sanitize_page(kind, LIST_KINDS[kind].field, response.result)
        )

    async def relay(self, request: Request, context: Context) -> Response:
        """Return the upstream's response by the general path; raises McpError if there is none."""
        params = request.params
        if self.login is not None and (params.find(LOGIN_STATE) >= 0 or params.find(b"\\u") >= 0):
            resumed = await self._after_login(self.login, request, context)
            if isinstance(resumed, Response):
                return resumed
            request = resumed
        declared = request
        if not self.policy.may_ask:
            request = _strip_questions(request)
        caller = self._callers.of(request, context)
        try:
            if request.method in ("resources/subscribe", "resources/unsubscribe"):
                return await self._subscribe(request, context, caller)
            return await self._relay.answer(caller, request, context)
        except TargetError as error:
            if error.kind == LOGIN:
                return await self._login_missing(declared, context, error)
            raise as_mcp_error(error) from None

    async def _login_missing(
        self, request: Request, context: Context, error: TargetError
    ) -> Response:
        """Answer a call that needs a login with a link to it, if its client can show one."""
        if self.login is not None and self._links is None and not is_below_agent():
            self._links = self.login.links()
        links = self._links
        answer = None if links is None else await links.offer(request, context, error)
        if answer is None:
            raise as_mcp_error(error) from None
        return answer

    async def _after_login(
        self, login: LoginAccount, request: Request, context: Context
    ) -> Request | Response:
        """Continue a call that was answered with a link, once its person has logged in."""
        # Without one, the state is of an earlier process, and refused.
        links = self._links or login.links()
        resumed = request if links is None else await links.resume(request, context)
        if resumed is not request and login.is_stale():
            await self._use_stored_login(login)
        return resumed

    async def _subscribe(self, request: Request, context: Context, caller: Caller) -> Response:
        """Subscribe a client to a resource; the upstream gets one request for all clients."""
        client_session = context.session
        assert client_session is not None  # the core rejects such a request without a session
        connection = self._pool.for_subscriptions(caller, request.version.modern)
        try:
            if request.method == "resources/unsubscribe":
                await connection.unsubscribe(request.uri, client_session)
            else:
                await connection.subscribe(request.uri, client_session)
                self._subscribers.add(client_session)
                client_session.on_end(self, lambda: self._unsubscribe_all(client_session))
        except ServerError as error:
            return Response(id=request.id, error=error.raw, code=error.code)
        return Response(id=request.id, result=b"{}")

    def _unsubscribe_all(self, client_session: Session) -> None:
        """Drop all subscriptions of a client that has left."""
        for connection in self._pool:
            for uri, holders in tuple(connection.subscriptions.items()):
                if client_session in holders:
                    self._background.start(connection.unsubscribe(uri, client_session))

    async def set_level(self, request: Request, context: Context) -> None:
        """Apply the log level that a client's session has now."""
        caller = self._callers.of(request, context)
        try:
            connection = self._pool.for_subscriptions(caller, request.version.modern)
            await connection.set_level((connection.owner or self._callers).level)
        except TargetError as error:
            raise as_mcp_error(error) from None

    def adopt_clients(self, before: "Upstream") -> None:
        """Replace another upstream; its clients keep their log levels and subscriptions."""
        self.starts += before.starts
        self._callers.sessions |= before._callers.sessions
        self._background.start(self._resubscribe(_subscriptions(before._pool)))

    async def _resubscribe(self, subscriptions: Iterable[tuple[Session, str]]) -> None:
        for client_session, uri in subscriptions:
            version = client_session.version or max(Version)  # only legacy clients have a handshake
            request = Request(method="resources/subscribe", uri=uri, version=version)
            with suppress(McpError):  # this upstream may lack a resource of the previous one
                await self.relay(request, Context(session=client_session))

    def _on_login_changed(self) -> None:
        if self.login is not None and not self._changing.locked():
            self._background.start(self._use_stored_login(self.login))

    async def change_account(self, place: str) -> bool:
        """Continue with the login that is stored now, if it is for this upstream; False if not."""
        if self.login is None or self.login.place_key != place:
            return False
        await self._use_stored_login(self.login)
        return True

    async def _use_stored_login(self, login: LoginAccount) -> None:
        """Leave the connections and catalogs of the account so far; its running calls finish."""
        async with self._changing:
            left = self._pool.leave_all()
            self._background.start(self._resubscribe(_subscriptions(left)))
            for connection in left:
                connection.subscriptions.clear()
            await self._views.forget(login.adopt)
            self._breaker.succeeded()
        for kind in LIST_KINDS:
            self._views.publish(Change(kind))
        self._notify_watchers(Change(""))

    def on_notification(self, request: Request, context: Context) -> None:
        """Forward a client's notification in the background."""
        caller = self._callers.of(request, context)
        modern = request.version.modern
        is_own = self._pool.is_own(caller, modern)
        if is_own and caller.session is None:
            return  # the notification does not identify its call
        if not is_own and request.method == _ROOTS_CHANGED:
            return  # a shared process has no client's roots
        try:
            session = self._pool.for_subscriptions(caller, modern).open_session
        except TargetError:
            return  # the limit of per-client processes is reached: there is no session
        if session is None or session.modern != modern:
            return
        if self.policy.is_gateway and request.method == _PROGRESS:
            # Of all servers, it is for the one whose question the client works on.
            token = progress_token(request.decode())
            if token is None or session.asked_tokens.get(token) is not caller:
                return
        self._background.start(self._notify(session, request))

    async def _notify(self, session: UpstreamSession, notice: Request) -> None:
        try:
            await session.exchange.notify(notice.method, notice.params)
        except TargetError as error:
            self._report(f"{notice.method} did not reach {self.name}: {error}")

    # Events of its connections.

    @property
    def is_listed(self) -> bool:
        """True if a catalog is known, of any kind of client."""
        self.offered()  # reads those from memory
        return any(view.catalog is not None for view in self._views)

    def starting(self) -> None:
        """Count a session that is about to open."""
        self.starts += 1

    def opened(self, connection: UpstreamConnection, session: UpstreamSession) -> None:
        """Record the era of a new session, and refresh its view."""
        supported = self._pool.supports.copy()
        self._pool.session_opened(connection, session)
        if self._pool.supports != supported:
            self._views.save()
        self._views.opened(connection.view, session)
        if self.policy.is_gateway and connection.view in (MODERN, LEGACY):
            view = self._views.get(connection.view)
            if view.catalog is None:  # kept, so that the next start begins in this era
                self._views.fetch_catalog(view, session)

    def list_changed(self, session: UpstreamSession, kind: str) -> None:
        """Fetch all lists again, at a limited rate."""
        connection = next(
            (connection for connection in self._pool if connection.open_session is session), None
        )
        if connection is None:
            return
        self._views.changed(connection.view, session, kind)

    def updated(self, session: UpstreamSession, uri: str, params: bytes) -> None:
        """Publish a change to a resource."""
        change = Change("resources", uri, params)
        self._views.publish(change)
        self._notify_watchers(change)

    def asked(self, what: frozenset[str]) -> None:
        """Record questions of the upstream; after the first, its clients leave a shared process."""
        if what <= self._pool.asks:
            return
        left = self._pool.asked(what)
        self._background.start(self._resubscribe(_subscriptions(left)))
        for connection in left:
            connection.subscriptions.clear()
        self._views.save()

    # Shutdown and status.

    async def close(self) -> None:
        """End all sessions, and the processes started for them."""
        self._relay.close()
        if self.login is not None:
            await self.login.close()
        if self._links is not None:
            await self._links.close()
        for client_session in tuple(self._subscribers):
            client_session.cancel_on_end(self)
        await self._background.close()
        await self._pool.close()
        # Reference cycles with the connections may live long: release everything large.
        self._watchers.clear()
        await self._views.close()
        self._callers.forget()

    def stop_idle(self) -> None:
        """End the sessions that nothing uses now, whatever their idle time."""
        for connection in self._pool:
            connection.stop_if_idle()

    @property
    def is_busy(self) -> bool:
        """True while calls or tasks are running, or calls are suspended."""
        return bool(self._relay.suspended) or any(
            connection.busy or connection.has_tasks for connection in self._pool
        )

    @property
    def is_installing(self) -> bool:
        """True while its installer runs, and until its first lists are fetched after that."""
        if self.policy.limits.install is None:
            return False
        is_listed = self.is_listed
        return any(
            connection.install == INSTALLING
            or (not is_listed and connection.busy and connection.open_session is not None)
            for connection in self._pool
        )

    def status(self) -> dict[str, Any]:
        """Return the state for `portico status`."""
        is_listed = self.is_listed
        return {
            "server": self.name,
            "breaker": "open" if self._breaker.is_open else "closed",
            "held": self._relay.suspended,
            "starts": self.starts,
            "connections": [
                {
                    "state": (not is_listed and connection.install) or str(connection.state),
                    "busy": connection.busy,
                    "starts": connection.starts,
                    "transport": connection.transport,
                    "shared": connection.owner is None,
                    "subscriptions": len(connection.subscriptions),
                }
                for connection in self._pool
            ],
            "lists": {
                kind: len(listed.items)
                for view in self._views
                if view.catalog is not None
                for kind, listed in view.catalog.offer.lists.items()
            },
            "login": None if self.login is None else self.login.status(),
            "changes": [] if self._history is None else self._history.recent(),
        }


def _subscriptions(connections: Iterable[UpstreamConnection]) -> list[tuple[Session, str]]:
    """Return the subscribers over these connections, each with the URI of a resource."""
    return [
        (client_session, uri)
        for connection in connections
        for uri, holders in connection.subscriptions.items()
        for client_session in holders
    ]


def _strip_questions(request: Request) -> Request:
    """Return the request without the capabilities for questions."""
    declared = request.meta.client_capabilities
    if not declared:
        return request
    return with_capabilities(request, encode(without_questions(members(declared))))


def _now() -> float:
    """Return the loop's time; looked up late, since a status needs no loop."""
    return asyncio.get_running_loop().time()
