"""The endpoints of a gateway: of all servers, of a group, of one server."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from portico.core.catalog.catalog import Catalog, Identity
from portico.core.catalog.merge import Merged
from portico.core.catalog.server_summary import ServerSummary, summarize
from portico.core.model.context import Context
from portico.core.model.message import Request, Response
from portico.core.model.types import Answer, Change, Handler, Link, Provider, Report
from portico.gateway.endpoints.exposure import Exposure
from portico.gateway.endpoints.metatools import MetaTools, SearchableRegistry
from portico.gateway.endpoints.middle_links import CompositionOrder
from portico.gateway.endpoints.qualified_links import QualifiedLinks
from portico.gateway.endpoints.router import CallRecorder, Router
from portico.gateway.members.member import Member
from portico.library.chain.endpoint import ChainEndpoint
from portico.library.chain.exact_params import exact_params
from portico.library.chain.views import Views
from portico.library.observe.observing import observing
from portico.library.tasks.mcp.lazy_tasks import LazyTools

if TYPE_CHECKING:
    from portico.gateway.endpoints.gateway_tasks import GatewayTasks
    from portico.library.tasks.mcp.lazy_tasks import LazyEntrance
    from portico.library.tasks.mcp.task_host import TaskHost

IN_FOLDER = "@"
"""Precedes the folder of its clients in the name of an endpoint."""


class EndpointRegistry(SearchableRegistry, Protocol):
    """The registry behind the endpoints."""

    searches: bool
    report_failure: Report
    folder: str
    """The folder of its clients, and of those that have none of their own; empty if unknown."""

    def identity(self) -> Identity:
        """Return the identity that clients see."""
        ...

    def order_of(self, router: Router, exposure: Exposure) -> CompositionOrder | None:
        """Return the order of a composition; None in a gateway."""
        ...

    def warn_once(self, words: str) -> None:
        """Report something to the operator, each text once."""
        ...


class GatewayEndpoints:
    """The endpoints in front of the members of one registry, made when they are first used."""

    def __init__(
        self,
        registry: EndpointRegistry,
        links: Sequence[Link],
        record_call: CallRecorder,
        tasks: "GatewayTasks | None",
    ) -> None:
        """`links` are before every endpoint; without `tasks`, no call becomes a task."""
        self.links = links
        self._registry = registry
        self._record_call = record_call
        self._tasks = tasks
        self._endpoints: dict[tuple[str, bool], tuple[Exposure, ChainEndpoint]] = {}
        self._routers: dict[ChainEndpoint, Router] = {}
        self._server_endpoints: dict[str, tuple[Member, ChainEndpoint]] = {}

    def exposures(self) -> Iterator[tuple[Exposure, Router]]:
        """Return the exposure and the router of each endpoint of several servers."""
        for exposure, endpoint in tuple(self._endpoints.values()):
            yield exposure, self._routers[endpoint]

    def publish_update(self, server: str, change: Change) -> None:
        """Notify the clients of all endpoints that a resource of a server has changed."""
        for exposure, _ in self._endpoints.values():
            exposure.publish_update(server, change)

    def publish_changes(self) -> None:
        """Notify the clients of all endpoints of the lists that differ."""
        for exposure, _ in self._endpoints.values():
            exposure.publish_changes()

    def added_tools(self) -> dict[str, bytes]:
        """Return the definitions of the tools that links add at any endpoint, by name."""
        added: dict[str, bytes] = {}
        for exposure, _ in self._endpoints.values() if self.links else ():
            added |= exposure.added_tools()
        return added

    def endpoint(self, group: str | None = None, searches: bool | None = None) -> ChainEndpoint:
        """Return the endpoint of all servers or of a group; KeyError if there is no such group.
        `searches` overrides the exposure."""
        if group is not None and group not in self._registry.config.groups:
            raise KeyError(group)
        key = (group or "", self._registry.searches if searches is None else searches)
        found = self._endpoints.get(key)
        if found is None:
            found = self._endpoints[key] = self._make_endpoint(group, key[1])
        return found[1]

    def shown(self, searches: bool) -> Catalog:
        """Return the catalog of all servers in one exposure, as far as it is known."""
        self.endpoint(None, searches)
        return self._endpoints["", searches][0].now()

    def server_endpoint(self, server: str) -> ChainEndpoint | None:
        """Return the endpoint of one server, under its own names; None if it is unknown."""
        member = self._registry.members.get(server)
        if member is None:
            self._server_endpoints.pop(server, None)
            return None
        known = self._server_endpoints.get(server)
        if known is None or known[0] is not member:
            provider = member.provider
            observe = observing(partial(self._record_server_call, server))
            made = ChainEndpoint(
                provider,
                [provider],
                self._server_links(member),
                self._registry.report_failure,
                observe,
                warn=self._registry.warn_once,
                tasks=self._member_tasks(member),
            )
            known = self._server_endpoints[server] = (member, made)
        return known[1]

    def _member_tasks(self, member: Member) -> "LazyEntrance | None":
        if self._tasks is None:
            return None
        from portico.gateway.endpoints.gateway_tasks import MemberPolicy

        at = self._in_folder(f"server:{member.name}")
        return self._tasks.link(at, MemberPolicy(self._registry, member))

    def _in_folder(self, at: str) -> str:
        """Return the name of an endpoint with its folder: the next gateway may have another one."""
        folder = self._registry.folder
        return f"{at}{IN_FOLDER}{folder}" if folder else at

    def _merged_tasks(self, exposure: Exposure, at: str) -> "LazyEntrance | None":
        if self._tasks is None:
            return None
        from portico.gateway.endpoints.gateway_tasks import MergedPolicy

        policy = MergedPolicy(
            self._registry, exposure, may_answer_with_text=not self._registry.is_composition
        )
        return self._tasks.link(at, policy)

    def endpoint_for_tasks(self, at: str) -> object:
        """Create the endpoint of a task that another process stored; None if there is none."""
        kind, _, name = at.partition(":")
        if kind == "server":
            return self.server_endpoint(name)
        if name and name not in self._registry.config.groups:
            return None
        return self.endpoint(name or None, kind == "search")

    def _can_have_tasks(self) -> bool:
        """True if a call can become a task of a client without tasks: after a time, because its
        tool requires one, or because it is delegated to an agent."""
        config = self._registry.config
        if config.gateway.sync_budget_s is not None or config.has_budgets:
            return True
        members = self._registry.members.values()
        return any(member.requires_tasks or member.delegates for member in members)

    def _server_links(self, member: Member) -> list[Link]:
        """Return the links before a server's own endpoint."""
        own: list[Link] = [exact_params, *member.links]
        if self.links:
            limit, views = self._registry.config.gateway.name_limit, self._views()
            qualified = QualifiedLinks(
                member.name, self.links, lambda: self._registry.merged, limit, views
            )
            own.insert(1, qualified)
        return [*own, self._with_downstream] if member.is_in_process else own

    def _with_downstream(self, next: Handler) -> Handler:
        """Let a member in this process call all tools, also at its own endpoint."""

        def handle(request: Request, context: Context) -> Answer:
            context.downstream = self.endpoint().handle
            return next(request, context)

        return handle

    def _views(self) -> Views:
        return Views(self.links, self._registry.report_failure, self._registry.warn_once)

    def relink(self, links: Sequence[Link]) -> None:
        """Replace the links before every endpoint. If a link raises, or adds a name that exists,
        the old ones stay."""
        before = self.links
        try:
            self._relink(links)
        except BaseException:
            self._relink(before)
            raise

    def _relink(self, links: Sequence[Link]) -> None:
        self.links = links
        for _, endpoint in self._endpoints.values():
            endpoint.relink(self._links_of(self._routers[endpoint]))
        for member, endpoint in self._server_endpoints.values():
            endpoint.relink(self._server_links(member))

    def _make_endpoint(self, group: str | None, searches: bool) -> tuple[Exposure, ChainEndpoint]:
        def servers() -> Sequence[str]:
            there = self._registry.config.groups.get(group or "")
            return there.servers if there is not None else ()

        exposure = Exposure(
            self._registry,
            self._registry.identity,
            searches=searches,
            summarize=self._summary,
            servers=servers if group else None,
            tasks=None if self._tasks is None else self._can_have_tasks,
        )
        # A composition has only the names of its members.
        metatools = None if self._registry.is_composition else MetaTools(self._registry, exposure)
        router = Router(self._registry, exposure, metatools, self._record_call)
        observe = observing(router.record)
        providers: list[Provider] = [router] if metatools is None else [router, metatools]
        at = self._in_folder(f"{'search' if searches else 'all'}:{group or ''}")
        tasks = self._merged_tasks(exposure, at)
        if tasks is not None and metatools is not None:
            providers.append(LazyTools(self._tasks_host, at))
        first = [] if metatools is None else [metatools.unwrapping]
        router.order = self._registry.order_of(router, exposure)
        endpoint = ChainEndpoint(
            exposure,
            providers,
            self._links_of(router),
            self._registry.report_failure,
            observe,
            first=first,
            before=[router.with_plain_uris],
            warn=self._registry.warn_once,
            tasks=tasks,
        )
        router.serve_at(endpoint)
        self._routers[endpoint] = router
        return exposure, endpoint

    def _tasks_host(self) -> "TaskHost":
        assert self._tasks is not None
        return self._tasks.host

    def _links_of(self, router: Router) -> list[Link]:
        """Return the links before an endpoint, and those between the members of a composition."""
        return [*self.links, *([] if router.order is None else router.order.middle_links())]

    def _record_server_call(
        self,
        server: str,
        request: Request,
        context: Context,
        response: Response | None,
        took_s: float,
    ) -> None:
        self._record_call(request, context, server, request.name or request.uri, response, took_s)

    def _summary(self, merged: Merged, servers: Sequence[str]) -> str:
        there = [self._registry.members[name] for name in servers if name in self._registry.members]
        return summarize(
            [ServerSummary(m.name, m.about, merged.namespaced_offers.get(m.name)) for m in there]
        )
