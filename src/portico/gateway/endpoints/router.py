"""The router: finds the member that owns a name or URI, and passes the request to it."""

import asyncio
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from portico.core.catalog.attributed_questions import named_error, named_result
from portico.core.catalog.merge import ItemRoute
from portico.core.catalog.resource_origins import URI_KEY_ENDING, ResourceOrigins
from portico.core.model.context import Context
from portico.core.model.errors import McpError
from portico.core.model.message import Request, Response
from portico.core.model.offer import Offer
from portico.core.model.types import Answer, Change, Handler
from portico.core.protocol.codec import mcp_error_response
from portico.core.protocol.eras import URL_REQUIRED
from portico.core.protocol.request_target import with_target
from portico.core.state.pending import Pending, after
from portico.gateway.endpoints import metatool_definitions
from portico.gateway.endpoints.exposure import Exposure, MemberRegistry
from portico.gateway.endpoints.failure_results import (
    failure_response,
    gateway_failure,
    result_response,
)
from portico.gateway.endpoints.metatool_definitions import EXECUTE_READ
from portico.gateway.endpoints.metatools import MetaTools
from portico.gateway.endpoints.middle_links import CompositionOrder
from portico.gateway.endpoints.rewrite import (
    InvalidCall,
    not_read_only,
    reference_of,
    validated,
    with_name,
    with_reference,
    with_uri,
    without_task_support,
)
from portico.library.chain.endpoint import ChainEndpoint
from portico.library.chain.fold import terminus

_SET_LEVEL_TIMEOUT_S = 2.0
"""The time that servers have to accept a client's log level."""


CallRecorder = Callable[[Request, Context, str, str, Response | None, float], None]
"""Called for every finished call with the request, its context, the server, the name, the response
(None if it was cancelled) and the duration in seconds."""


class Router:
    """The provider for all members of one endpoint."""

    name = "router"

    def __init__(
        self,
        registry: MemberRegistry,
        exposure: Exposure,
        metatools: MetaTools | None,
        record_call: CallRecorder,
    ) -> None:
        self._registry = registry
        self._exposure = exposure
        self._metatools = metatools
        self._record_call = record_call
        self._origins = ResourceOrigins()
        self._endpoint: ChainEndpoint | None = None
        self.order: CompositionOrder | None = None
        """The order of a composition; None in a gateway."""

    def serve_at(self, endpoint: ChainEndpoint) -> None:
        """Let members in this process call tools of this endpoint, through its links and log."""
        self._endpoint = endpoint

    def downstream_of(self, server: str) -> Handler | None:
        """Return the handler of the tools that a member in this process can call. A composition has
        the tools of the members after it, a gateway those of the whole endpoint."""
        if self.order is not None:
            return self.order.downstream_of(server)
        return None if self._endpoint is None else self._endpoint.handle

    def offer(self) -> Offer:
        """Return the merged offer of the members."""
        return self._exposure.merged.offer()

    def watch(self, changed: Callable[[Change], None]) -> None:
        """Do nothing: the exposure publishes changes."""

    def provide(self, request: Request, context: Context) -> Answer | None:
        """Answer through the member that owns the request; None for the meta-tools."""
        if request.method == "tools/call":
            place = self._exposure.merged.tools.get(request.name)
            if place is None:
                if self._metatools is not None and request.name in metatool_definitions.RESERVED:
                    return None
                # A link may call a tool that its own view hides.
                place = self._exposure.whole.tools.get(request.name)
                if place is None:
                    return self._call_when_known(request, context)
            return self.call(request, context, place)
        found = self._route(request, context)
        if found is None:
            context.target = ("", "")
            return terminus(request)
        return self._pass_on(request, context, *found)

    def record(
        self, request: Request, context: Context, response: Response | None, took_s: float
    ) -> None:
        """Record a call, unless it had no owner or was a query of Portico itself."""
        target = context.target
        if target is None:
            if not metatool_definitions.is_own_query(request):
                name = request.name or request.uri
                self._record_call(request, context, "", name, response, took_s)
        elif target[1]:
            self._record_call(request, context, *target, context.failure or response, took_s)

    def with_plain_uris(self, next: Handler) -> Handler:
        """Wrap the next handler so that it sees every resource under its exposed URI."""

        def handle(request: Request, context: Context) -> Answer:
            uri = request.uri
            if request.method == "completion/complete":
                uri = reference_of(request).uri
            plain = self._exposure.whole.routing.canonical_exposed(uri) if uri else uri
            return next(request if plain == uri else with_target(request, "uri", plain), context)

        return handle

    def on_notification(self, request: Request, context: Context) -> None:
        """Pass a client's notification to all members, unless the protocol does not have it; each
        member forwards only its own."""
        if request.meaning is None:
            return
        for name in self._exposure.servers():
            self._registry.members[name].on_notification(request, context)

    async def set_level(self, request: Request, context: Context) -> None:
        """Pass a client's log level to all members, with a timeout."""
        members = [self._registry.members[name] for name in self._exposure.servers()]
        telling = [asyncio.ensure_future(member.set_level(request, context)) for member in members]
        for task in telling:
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        if telling:
            await asyncio.wait(telling, timeout=_SET_LEVEL_TIMEOUT_S)

    async def _call_when_known(self, request: Request, context: Context) -> Response:
        """Call a tool once its server's tools are known."""
        metatools = self._metatools
        if metatools is None:
            await self._exposure.ready(request, context)
            if request.name not in self._exposure.merged.tools:
                return terminus(request)
        elif not await metatools.wait_for_tool(request.name):
            return metatools.unknown_tool(request, context)
        return await self.call(request, context, self._exposure.merged.tools[request.name])

    def call(self, request: Request, context: Context, place: ItemRoute) -> Answer:
        """Call the tool of a member."""
        namespaced, tool = place
        if not request.asked:
            return self._pass_on(request, context, namespaced.server, with_name(request, tool))
        try:
            if request.asked == EXECUTE_READ:
                self._check_read(request, place)
            inner = validated(request, place)
        except InvalidCall as invalid:
            context.target = (namespaced.server, tool)
            return result_response(request, context, invalid.result())
        return self._pass_on(request, context, namespaced.server, inner)

    def _check_read(self, request: Request, place: ItemRoute) -> None:
        """Check again that a tool is read-only, since links and tasks take time. A call that a link
        makes itself is the link's choice. Raises InvalidCall."""
        if not (request.is_derived or self._exposure.is_read_only(place)):
            raise not_read_only(request.name)

    def _pass_on(self, request: Request, context: Context, server: str, inner: Request) -> Answer:
        member = self._registry.members.get(server)
        if member is None:
            return terminus(request)
        context.target = (server, inner.name or inner.uri)
        context.headers = None  # they described the client's call
        declared = inner.meta.client_capabilities
        if declared and context.task_wish is None and (b"tasks" in declared or b"\\" in declared):
            inner = without_task_support(inner)
        request.params = inner.params  # large arguments are kept once
        if member.is_in_process:
            context.downstream = self.downstream_of(server)
        answer = member.handle(inner, context)
        if type(answer) is Response or isinstance(answer, Pending):
            return after(answer, lambda response: self._shown(request, context, server, response))
        return self._await_answer(request, context, server, answer)

    async def _await_answer(
        self, request: Request, context: Context, server: str, answer: Awaitable[Response]
    ) -> Response:
        try:
            response = await answer
        except McpError as error:
            if not request.asked:
                raise
            return _failure_response(request, context, error)
        return self._shown(request, context, server, response)

    def _shown(
        self, request: Request, context: Context, server: str, response: Response
    ) -> Response:
        """Return a member's response as the client receives it."""
        if response.error:
            failure = gateway_failure(response, server) if request.asked else None
            if failure is not None:
                return _failure_response(request, context, failure)
            if response.code != URL_REQUIRED:
                return response
            return replace(response, error=named_error(response.error, server))
        result = response.result
        # A field's name may also be escaped.
        if request.version.modern and (b'"inputRequests"' in result or b"\\u" in result):
            response = replace(response, result=named_result(result, server))
        if URI_KEY_ENDING not in result:
            return response
        return self._origins.rewrite_uris(response, server, self._exposure.whole.routing, context)

    def _route(self, request: Request, context: Context) -> tuple[str, Request] | None:
        """Return the owner of a prompt or resource, and the request for that server."""
        if request.method == "prompts/get":
            place = self._exposure.whole.prompt(request.name)
            return None if place is None else (place[0].server, with_name(request, place[1]))
        if request.method == "completion/complete":
            return self._route_reference(request, context)
        if not request.method.startswith("resources/"):
            return None
        server, uri = self._owner(request.uri, context)
        return None if server is None else (server, with_uri(request, uri))

    def _route_reference(self, request: Request, context: Context) -> tuple[str, Request] | None:
        reference = reference_of(request)
        if reference.type == "ref/prompt":
            place = self._exposure.whole.prompt(reference.name)
            if place is None:
                return None
            return place[0].server, with_reference(request, "name", place[1])
        server, uri = self._owner(reference.uri, context)
        return None if server is None else (server, with_reference(request, "uri", uri))

    def _owner(self, uri: str, context: Context) -> tuple[str | None, str]:
        whole = self._exposure.whole
        server, own = whole.resource(uri)
        if server is None:
            server = self._origins.owner(uri, context) or whole.routing.fallback(uri)
            # The guards of the chain do not know the owner of such a URI.
            if server is not None and self._exposure.hides(server, own):
                server = None
        return server, own


def _failure_response(request: Request, context: Context, error: McpError) -> Response:
    """Return the gateway's own failure as the result of `execute_tool`."""
    context.failure = mcp_error_response(request.id, error)
    return failure_response(request, context, error)
