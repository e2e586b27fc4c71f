"""The core of an endpoint: it answers static requests and passes the rest to the providers."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from msgspec import DecodeError, Struct

from portico.core.catalog.catalog import Catalog
from portico.core.model.context import ANYONE, Context
from portico.core.model.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    InvalidParams,
    McpError,
)
from portico.core.model.message import NOTHING, Request, Response
from portico.core.model.methods import KNOWN, LISTS, MethodKind
from portico.core.model.session import LOG_LEVELS, Session
from portico.core.model.types import Answer, Handler, LogLevelAware, Notified, Provider, Report
from portico.core.model.version import Version, negotiate
from portico.core.model.wording import printable
from portico.core.protocol.codec import encode, error_response, mcp_error_response
from portico.core.protocol.listen import (
    ListenFilter,
    acknowledgement,
    listen_filter,
    subscription_end,
    task_message,
)
from portico.core.protocol.result_fields import EMPTY_RESULT
from portico.core.protocol.tasks import without_task_list
from portico.core.state.pending import Pending
from portico.library.chain.endpoint_parts import CatalogSource, Hub, TaskEntrance
from portico.library.chain.fold import CATALOG_UNKNOWN, terminus
from portico.library.functions.handler_exceptions import ends_call

# Members of an enum are slow to look up.
_STATIC, _CORE, _NOTIFICATION = MethodKind.STATIC, MethodKind.CORE, MethodKind.NOTIFICATION


_PREFIX = "notifications/"
_OWN_NOTIFICATIONS = ("notifications/initialized", "notifications/cancelled")
"""Notifications that are not passed to providers."""


class SingleCatalog:
    """A source with one catalog for all clients, which is always known."""

    def __init__(self, make: Callable[[int], Catalog], hub: Hub) -> None:
        """`make` builds the current catalog with the given number."""
        self._make = make
        self._hub = hub
        self._made: Catalog | None = None
        self.changes = 1
        """Grows with every change of the offer."""

    def now(self) -> Catalog:
        """Return the current catalog."""
        made, number = self._made, self.changes
        if made is None or made.number != number:
            # A change by another thread from here on has a higher number, and is not missed.
            made = self._made = self._make(number)
        return made

    def catalog(self, request: Request, context: Context) -> Catalog:
        """Return the one catalog."""
        return self.now()

    def published(self) -> "list[tuple[Catalog, Hub]]":
        """Return the one catalog and its hub."""
        return [(self.now(), self._hub)]

    async def ready(self, request: Request, context: Context) -> None:
        """Return at once: the catalog is known."""

    def hub(self, request: Request, context: Context) -> Hub:
        """Return the one hub."""
        return self._hub

    def on_initialize(self, request: Request, context: Context) -> None:
        """Log the client, whose name is its own claim; all clients see the same."""
        import logging

        session = context.session
        client = {} if session is None else session.client_info
        who = printable(f"{client.get('name', 'unnamed client')} {client.get('version', '')}")
        version = "" if session is None or session.version is None else session.version.text
        logging.getLogger("portico").debug("initialize: %s, protocol %s", who[:200], version)


class _InitializeParams(Struct):
    protocolVersion: str  # noqa: N815  (a field of the wire)
    capabilities: dict[str, Any]
    clientInfo: dict[str, Any]  # noqa: N815  (a field of the wire)


class _LevelParams(Struct):
    level: str


class Core:
    """The core of one endpoint, between its catalogs and its providers."""

    def __init__(
        self,
        source: CatalogSource,
        providers: Sequence[Provider],
        tasks: TaskEntrance | None = None,
    ) -> None:
        self._source = source
        self._tasks = tasks
        self._catalog = source.catalog
        self._dispatch = first_owner(providers)
        self._notices = [one.on_notification for one in providers if isinstance(one, Notified)]
        self._levels = [one.set_level for one in providers if isinstance(one, LogLevelAware)]
        self.entry: Handler = self.answer
        """The whole chain, for requests that the core itself makes on a client's behalf."""

    def answer(self, request: Request, context: Context) -> Answer:
        """Answer any request; `responding` turns exceptions into responses."""
        meaning = request.meaning
        if not request.id:
            return self._notice(request, context)
        if meaning is None:
            return self._answer_unlisted(request, context)
        kind, capability = meaning.kind, meaning.capability
        if kind is _NOTIFICATION:
            return _not_found(request)
        if kind is _CORE and not capability:
            return _CORE_METHODS[request.method](self, request, context)
        catalog = self._catalog(request, context)
        if catalog is None:
            return self._answer_when_ready(request, context)
        if kind is _STATIC:
            # Without a cursor and a date, the page stays valid as long as the catalog does.
            ready = (
                None
                if request.cursor
                else catalog.static_lists.get((request.method, request.version))
            )
            if ready is not None:
                return Response(id=request.id, result=ready)
            return self._static(catalog, request, context, capability)
        if capability not in catalog.kinds:
            return _not_found(request)
        context.server_info = catalog.identity
        if kind is _CORE:
            return _CORE_METHODS[request.method](self, request, context)
        if request.method == "tools/call":
            task_control = context.task_control
            if task_control is not None and task_control.performs:
                return task_control.perform(self._dispatch, request, context)
        elif request.name and not request.uri and request.method == "resources/read":
            request.uri = catalog.uri_of(request.name)
        return self._dispatch(request, context)

    async def _answer_when_ready(self, request: Request, context: Context) -> Response:
        """Answer once this client's catalog is known."""
        await self._source.ready(request, context)
        if self._catalog(request, context) is None:
            raise McpError(CATALOG_UNKNOWN)
        return await self.answer(request, context)

    def _static(
        self, catalog: Catalog, request: Request, context: Context, capability: str
    ) -> Answer:
        """Answer from the catalog's ready bytes, if the catalog has this capability."""
        if not capability:
            return Response(id=request.id, result=catalog.discovery(request.version))
        if capability not in catalog.kinds:
            return _not_found(request)
        if request.method in catalog.incomplete_lists:
            return self._dispatch(request, context)  # as the server itself sends it
        page = catalog.page(LISTS[request.method], request.version, request.cursor)
        if page is None:
            return error_response(request.id, INVALID_PARAMS, "unknown cursor: list from the start")
        if not request.cursor and not request.version.modern:
            catalog.static_lists[request.method, request.version] = page
        return Response(id=request.id, result=page)

    def _notice(self, request: Request, context: Context) -> Response:
        """Pass a notification to the providers that accept it, unless it is a request without an
        id, or a notification of another version."""
        method = request.method
        is_known = request.meaning is not None or method not in KNOWN
        if is_known and method.startswith(_PREFIX) and method not in _OWN_NOTIFICATIONS:
            for notice in self._notices:
                notice(request, context)
        return NOTHING

    def _answer_unlisted(self, request: Request, context: Context) -> Answer:
        """Answer a method that the table does not have at this version."""
        if request.method in KNOWN:
            return _not_found(request)
        catalog = self._catalog(request, context)
        if catalog is None:
            return self._answer_when_ready(request, context)
        context.server_info = catalog.identity
        return self._dispatch(request, context)

    def _ping(self, request: Request, context: Context) -> Response:
        return Response(id=request.id, result=EMPTY_RESULT)

    def _initialize(self, request: Request, context: Context) -> Answer:
        params = request.decode_as(_InitializeParams)
        session = context.session
        if session is not None:
            if session.version is not None:
                return error_response(request.id, INVALID_REQUEST, "already initialized")
            # The catalog may depend on the client's capabilities, so they are set first.
            session.capabilities, session.client_info = params.capabilities, params.clientInfo
        version = negotiate(params.protocolVersion)
        catalog = self._catalog(request, context)
        if catalog is None:
            return self._initialize_later(request, context, version)
        return self._finish_initialize(request, context, version, catalog)

    async def _initialize_later(
        self, request: Request, context: Context, version: Version
    ) -> Response:
        session = context.session
        try:
            await self._source.ready(request, context)
            catalog = self._catalog(request, context)
            assert catalog is not None
        except McpError:
            if session is not None:
                session.capabilities, session.client_info = {}, {}
            raise
        return self._finish_initialize(request, context, version, catalog)

    def _finish_initialize(
        self, request: Request, context: Context, version: Version, catalog: Catalog
    ) -> Response:
        session = context.session
        if session is not None:
            session.version = version
            self._source.hub(request, context).attach(session)
            self._source.on_initialize(request, context)
        handshake = catalog.handshake(version)
        if context.principal == ANYONE and self._tasks is not None:
            handshake = without_task_list(handshake)
        return Response(id=request.id, result=handshake)

    def _set_level(self, request: Request, context: Context) -> Answer:
        session = _session(request, context)
        level = request.decode_as(_LevelParams).level
        if level not in LOG_LEVELS:
            raise InvalidParams(f"level must be one of {', '.join(LOG_LEVELS)}, not {level[:40]!r}")
        session.log_level = level
        done = Response(id=request.id, result=EMPTY_RESULT)
        return self._forward_level(request, context, done) if self._levels else done

    async def _forward_level(self, request: Request, context: Context, done: Response) -> Response:
        for tell in self._levels:
            await tell(request, context)
        return done

    async def _subscribe(self, request: Request, context: Context) -> Response:
        session = _session(request, context)
        if not request.uri:
            raise InvalidParams(f"{request.method} needs a uri")
        response = await self._dispatch(request, context)
        if not response.error:
            if request.method == "resources/subscribe":
                session.subscriptions.add(request.uri)
            else:
                session.subscriptions.discard(request.uri)
        return response

    async def _listen(self, request: Request, context: Context) -> Response:
        if context.peer is None:
            raise McpError("this transport cannot stream notifications")
        catalog = self._catalog(request, context)
        if catalog is None:
            await self._source.ready(request, context)
            catalog = self._catalog(request, context)
            assert catalog is not None
        context.server_info = catalog.identity
        asked = listen_filter(request, catalog.kinds)
        listener = Session(_discard)
        if context.session is not None:
            listener.parent = context.session
            listener.notes = context.session.notes  # the same client
        asker = Context(
            principal=context.principal,
            data=context.data,
            session=listener,
            version=request.version,
        )
        try:
            uris = [uri for uri in asked.uris if await self._may_follow(uri, asker)]
            tasks: list[str] = []
            if asked.tasks and self._tasks is not None:
                tasks = await self._tasks.visible_tasks(asked.tasks, request, context)
            await self._follow(asked.only(uris, tasks), request, context)
        finally:
            listener.end()  # cancels the subscriptions made on its behalf
        return Response(id=request.id, result=subscription_end(request.id))

    async def _follow(self, wanted: ListenFilter, request: Request, context: Context) -> None:
        """Send a listener its notifications, the acknowledgement first."""
        hub, peer = self._source.hub(request, context), context.peer
        assert peer is not None
        acknowledged = asyncio.Event()
        first = acknowledgement(wanted)
        if not wanted.tasks or self._tasks is None:
            await hub.follow(wanted, context, first, acknowledged.set)
            return

        async def send(params: bytes) -> None:
            await acknowledged.wait()
            await peer.notify(task_message(params, wanted.id))

        async with self._tasks.following(wanted.tasks, request, context, send):
            await hub.follow(wanted, context, first, acknowledged.set)

    async def _may_follow(self, uri: str, asker: Context) -> bool:
        """Try a subscription as a legacy client would make it, through links and providers."""
        ask = Request(method="resources/subscribe", id=b"0", params=encode({"uri": uri}), uri=uri)
        ask.version = asker.version or ask.version  # for a server with the client's era
        try:
            return not (await self.entry(ask, asker)).error
        except McpError:
            return False


_CORE_METHODS: dict[str, Callable[[Core, Request, Context], Answer]] = {
    "initialize": Core._initialize,
    "ping": Core._ping,
    "logging/setLevel": Core._set_level,
    "resources/subscribe": Core._subscribe,
    "resources/unsubscribe": Core._subscribe,
    "subscriptions/listen": Core._listen,
}


def first_owner(providers: Sequence[Provider]) -> Handler:
    """Return a handler that tries each provider in turn, then the terminus. The handlers of a
    provider can call the tools of the providers after it."""
    frozen = tuple(providers)
    if any(getattr(provider, "calls_downstream", False) for provider in frozen[:-1]):
        return _Composition(frozen).handle

    def ask_each(request: Request, context: Context) -> Answer:
        for provider in frozen:
            answer = provider.provide(request, context)
            if answer is not None:
                return answer
        return terminus(request)

    return ask_each


class _Composition:
    """Several providers in order, each with those after it as its downstream."""

    def __init__(self, providers: tuple[Provider, ...]) -> None:
        self._providers = providers
        self._rests: list[Handler | None] = [
            *(partial(self._ask, at, None) for at in range(1, len(providers))),
            None,
        ]

    def handle(self, request: Request, context: Context) -> Answer:
        """Answer through the first provider that owns the request."""
        return self._ask(0, context.downstream, request, context)

    def _ask(self, start: int, outer: Handler | None, request: Request, context: Context) -> Answer:
        """Try the providers from a place on; `outer` is downstream of the whole composition."""
        for at in range(start, len(self._providers)):
            rest = self._rests[at]
            if outer is not None:
                rest = outer if rest is None else partial(self._ask, at + 1, outer)
            context.downstream = rest
            answer = self._providers[at].provide(request, context)
            if answer is not None:
                return answer
        context.downstream = outer
        return outer(request, context) if start and outer is not None else terminus(request)


def responding(handler: Handler, report: Report) -> Handler:
    """Wrap a handler so that an exception becomes the response to its own request only."""

    def respond(request: Request, context: Context) -> Answer:
        try:
            answer = handler(request, context)
            if type(answer) is Response:
                sound = request.id and (answer.result or answer.error)
                return answer if sound else _checked_response(answer, request)
        except BaseException as error:  # noqa: BLE001  (a link may raise anything)
            return _failure(request, error, report)
        if isinstance(answer, Pending):
            return answer
        return _await_response(answer, request, report)

    return respond


async def _await_response(
    answer: Awaitable[Response], request: Request, report: Report
) -> Response:
    try:
        return _checked_response(await answer if hasattr(answer, "__await__") else answer, request)
    except BaseException as error:  # noqa: BLE001  (a link may raise anything)
        return _failure(request, error, report)


def _failure(request: Request, error: BaseException, report: Report) -> Response:
    """Return an exception as the response to the request that raised it."""
    if ends_call(error):
        raise error
    if isinstance(error, McpError):
        response = mcp_error_response(request.id, error)
    elif isinstance(error, RecursionError):
        response = error_response(request.id, INVALID_REQUEST, "nested too deeply")
    elif isinstance(error, DecodeError):
        words = f"params of {request.method}: {error}"
        response = error_response(request.id, INVALID_PARAMS, words)
    else:
        report(request, error)
        response = error_response(request.id, INTERNAL_ERROR, "internal error")
    return response if request.id else NOTHING


def _checked_response(response: Any, request: Request) -> Response:
    """Return a response, if it is one: a link may have forgotten to return it."""
    if not request.id:
        return NOTHING
    if not isinstance(response, Response):
        kind = type(response).__name__
        raise TypeError(f"a link or provider returned {kind} instead of a Response")
    if response.is_nothing:
        raise TypeError("a link or provider returned an empty Response to a request")
    return response


def _session(request: Request, context: Context) -> Session:
    # Without a session, its state is refused, never shared.
    if context.session is None:
        raise McpError(f"{request.method} needs a session", INVALID_REQUEST)
    return context.session


def _discard(message: bytes) -> None:
    """Drop a message to a listener's session, which only carries its subscriptions."""


def _not_found(request: Request) -> Response:
    return error_response(request.id, METHOD_NOT_FOUND, f"method not found: {request.method[:200]}")
