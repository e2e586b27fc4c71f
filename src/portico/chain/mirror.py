"""The doorway to one upstream: its static answers from the catalog, all else passed through."""

from collections.abc import Callable
from weakref import WeakKeyDictionary, ref

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from portico.catalog.catalog import FIELDS, Catalog
from portico.chain.core import Core, respond, static_answer
from portico.model.context import Context
from portico.model.errors import METHOD_NOT_FOUND, McpError
from portico.model.message import NOTHING, Request, Response
from portico.model.methods import LISTS, Kind
from portico.model.types import Answer
from portico.protocol.codec import error_response
from portico.protocol.results import EMPTY_RESULT
from portico.upstream.upstream import Upstream
from portico.upstream.views import View

Report = Callable[[Request, BaseException], None]
_STATIC, _CALL = Kind.STATIC, Kind.CALL  # members of an enum are slow to look up
_OURS = ("notifications/initialized", "notifications/cancelled")


class _Level(Struct):
    level: str = ""


class MirrorEndpoint:
    """Serves one upstream as it is: plain names, its own words, every field kept."""

    def __init__(
        self,
        upstream: Upstream,
        report: Report,
        *,
        warm: bool = False,
        lost: Callable[[McpError], None] | None = None,
    ) -> None:
        """`warm` starts the upstream as soon as a client says hello; `lost` is told if there is
        nothing to offer it, because the upstream cannot be had."""
        self._upstream = upstream
        self._report = report
        self._warm = warm
        self._lost = lost
        self._cores: WeakKeyDictionary[View, Core] = WeakKeyDictionary()

    def serves(self, upstream: Upstream) -> bool:
        """True if it is this upstream that it serves."""
        return self._upstream is upstream

    def handle(self, request: Request, context: Context) -> Answer:
        """The answer; whatever goes wrong is the answer to this request only."""
        if not request.id:
            if request.method not in _OURS:
                self._upstream.notice(request, context)
            return NOTHING
        meaning = request.meaning
        if meaning is not None:
            kind = meaning.kind
            if kind is _STATIC:
                response = self._static(request, context, meaning.capability)
                if response is not None:
                    return response
            elif kind is _CALL:
                return respond(self._call, request, context, self._report)
            elif request.method == "ping":
                return Response(id=request.id, result=EMPTY_RESULT)
        return respond(self._answer, request, context, self._report)

    def _static(self, request: Request, context: Context, capability: str) -> Response | None:
        """The answer to what is static; None as long as the catalog is not known."""
        catalog = self._upstream.view(request, context).catalog
        if catalog is None or request.method in catalog.unheard:
            return None
        # Without a cursor and a date it stays as it is for as long as the catalog does.
        asked = (request.method, request.version)
        ready = None if request.cursor else catalog.settled.get(asked)
        if ready is not None:
            return Response(id=request.id, result=ready)
        response = static_answer(catalog, request, capability)
        if response.result and not request.cursor and not request.version.modern:
            catalog.settled[asked] = response.result
        return response

    def _call(self, request: Request, context: Context) -> Answer:
        assert request.meaning is not None
        express = self._upstream.express(request.meaning.capability, request, context)
        return self._answer(request, context) if express is None else express

    async def _answer(self, request: Request, context: Context) -> Response:
        if request.method == "initialize":
            return await self._initialize(request, context)
        view = await self._upstream.ready(request, context)
        assert view.catalog is not None
        if request.method in view.catalog.unheard:
            return await self._unheard(request, context)
        core = self._core(view)
        if request.method != "logging/setLevel":
            return await core.answer(request, context)
        if "logging" not in view.catalog.kinds:
            return error_response(request.id, METHOD_NOT_FOUND, "method not found")
        response = await core.answer(request, context)
        if response.result:
            level = msgspec.json.decode(request.params, type=_Level).level
            await self._upstream.set_level(level, request, context)
        return response

    async def _unheard(self, request: Request, context: Context) -> Response:
        """A list that is not in the catalog, as the upstream itself sends it."""
        response = await self._upstream.relay(request, context)
        if not response.result or not self._upstream.plan.reveals:
            return response
        from portico.catalog.reveal import reveal_page

        kind = LISTS[request.method]
        return replace(response, result=reveal_page(kind, FIELDS[kind], response.result))

    async def _initialize(self, request: Request, context: Context) -> Response:
        """Take in what the client says of itself, then answer with what it is offered."""
        session = context.session
        if session is None or session.version is not None:
            view = await self._upstream.ready(request, context)
            return await self._core(view).answer(request, context)
        # The session learns who the client is first: a throw-away core does that part.
        hello = _said(request)
        session.capabilities, session.client_info = hello.capabilities, hello.clientInfo
        try:
            view = await self._upstream.ready(request, context)
        except McpError as error:
            session.capabilities, session.client_info = {}, {}
            if self._lost is not None:
                self._lost(error)
            raise
        response = await self._core(view).answer(request, context)
        if self._warm and response.result:
            self._upstream.warm(request, context)
        return response

    def _core(self, view: View) -> Core:
        core = self._cores.get(view)
        if core is None:
            seen = ref(view)  # a core goes with its view, so it must not be what keeps it

            def catalog() -> Catalog:
                view = seen()
                assert view is not None
                assert view.catalog is not None
                return view.catalog

            core = self._cores[view] = Core(catalog, self._upstream.relay, view.hub)
            core.door = self._follow
        return core

    async def _follow(self, ask: Request, asker: Context) -> Response:
        """Follow a resource for a modern listener, in its own era where the upstream has that."""
        ask.at(asker.version or ask.version)
        return await self._upstream.relay(ask, asker)


class _Hello(Struct):
    capabilities: dict[str, object] = {}
    clientInfo: dict[str, object] = {}  # noqa: N815  (a field of the wire)


def _said(request: Request) -> _Hello:
    try:
        return msgspec.json.decode(request.params or b"{}", type=_Hello)
    except msgspec.DecodeError:
        return _Hello()  # the core will say what is wrong with it
