"""The catalog that one endpoint of the gateway shows its clients, and its change notifications."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import msgspec

from portico.agents.delegation.delegate_definitions import AGENT_TOOL_NAMES
from portico.core.catalog.catalog import Catalog, Identity, without_output_schema
from portico.core.catalog.merge import ItemRoute, Merged
from portico.core.config.schema import Config
from portico.core.model.context import Context
from portico.core.model.message import Request
from portico.core.model.methods import LISTS
from portico.core.model.offer import KINDS, Listed, Offer
from portico.core.model.types import Change
from portico.core.protocol.codec import encode
from portico.core.protocol.tasks import without_tasks
from portico.core.state.hub import ChangeHub
from portico.gateway.endpoints import metatool_definitions
from portico.gateway.endpoints.filtered_merged import FilteredMerged
from portico.gateway.endpoints.instructions import merged_instructions
from portico.gateway.endpoints.short_tools import shortened_tools
from portico.gateway.endpoints.tool_hints import hinted
from portico.gateway.members.member import Member
from portico.library.chain.views import UNLEARNED_S, ViewFailed, ViewPending, Views
from portico.library.tasks.mcp.task_tool_definitions import task_tools

_KINDS = ("tools", "resources", "prompts")
FIRST_LIST_TIMEOUT_S = 10.0
"""The time that the very first list waits for the servers' catalogs."""


class MemberRegistry(Protocol):
    """The members of a gateway and their merged offers."""

    config: Config
    merged: Merged
    members: dict[str, Member]

    @property
    def is_composition(self) -> bool:
        """True if the members form one server, each with those after it as its downstream."""
        ...

    async def wait_for_catalog(self, server: str) -> None:
        """Wait until a server's catalog is known, up to a timeout."""
        ...


class Exposure:
    """The catalog of one endpoint, built once per set of offers."""

    def __init__(
        self,
        registry: MemberRegistry,
        identity: Callable[[], Identity],
        *,
        searches: bool,
        tasks: Callable[[], bool] | None = None,
        summarize: Callable[[Merged, Sequence[str]], str],
        servers: Callable[[], Sequence[str]] | None = None,
    ) -> None:
        """`searches` shows the meta-tools and pinned tools instead of every tool; `summarize`
        describes the servers briefly; `servers` returns the servers of a group. `tasks` returns
        True if calls can become tasks; None if this endpoint declares none."""
        self._tasks = tasks
        self._filtered: FilteredMerged | None = None
        self._registry = registry
        self._identity = identity
        self._searches = searches
        self._summarize = summarize
        self._group = servers
        self._whole: tuple[Merged, Config, Merged] | None = None
        """The offers of all servers, the config, and the offers of this endpoint's servers."""
        self._catalog: tuple[Merged, Config, Catalog] | None = None
        """The offers of all servers, the config, and the catalog made of them."""
        self._published: Catalog | None = None
        self._revision = 0
        self._hub = ChangeHub()
        self._awaits_first_list = not searches

    def servers(self) -> Sequence[str]:
        """Return the names of the endpoint's servers, in order."""
        if self._group is None:
            return list(self._registry.members)
        return [name for name in self._group() if name in self._registry.members]

    @property
    def whole(self) -> Merged:
        """The offers of these servers, including all that views hide."""
        everything = self._registry.merged
        if self._group is None:
            return everything
        config, known = self._registry.config, self._whole
        if known is None or known[0] is not everything or known[1] is not config:
            here = everything.only(frozenset(self.servers()))
            known = self._whole = (everything, config, here)
        return known[2]

    @property
    def merged(self) -> Merged:
        """The visible offers of these servers; raises ViewFailed."""
        if self._filtered is not None:
            return self._filtered.merged
        return self._registry.merged if self._group is None else self.whole

    @property
    def is_filtered(self) -> bool:
        """True if views may hide something."""
        return self._filtered is not None

    def filtered(self, views: Views) -> FilteredMerged:
        """Return the offers of these servers behind views."""
        reserved = () if self._registry.is_composition else metatool_definitions.RESERVED
        return FilteredMerged(lambda: self.whole, views, frozenset(reserved))

    def use(self, filtered: FilteredMerged | None) -> None:
        """Show these offers, and all meta-tools, from now on; publish the lists that differ."""
        self._filtered = filtered
        self._catalog = None
        self.publish_changes()

    def added_tools(self) -> dict[str, bytes]:
        """Return the definitions of the tools that links added, by name; none if a view failed."""
        if self._filtered is None:
            return {}
        with contextlib.suppress(ViewFailed):
            added = self.merged.added
            if added is not None:
                listed = added.listed("tools")
                return dict(zip(listed.keys, listed.items, strict=True))
        return {}

    def hides(self, server: str, uri: str) -> bool:
        """True if a server has this resource or template, but a view hides it."""
        if self._filtered is None:
            return False
        whole, seen = (
            self._registry.merged.namespaced_offers.get(server),
            self.merged.namespaced_offers.get(server),
        )
        return whole is not None and seen is not None and whole.hides(uri, seen)

    def is_read_only(self, place: ItemRoute) -> bool:
        """True if a tool is read-only by its server's word, which the config trusts."""
        namespaced, tool = place
        member = self._registry.members.get(namespaced.server)
        if member is not None and not member.entry.trust_hints:
            return False
        annotations = namespaced.definition(tool).get("annotations")
        return isinstance(annotations, dict) and annotations.get("readOnlyHint") is True

    def redact_status(self, status: dict[str, Any]) -> None:
        """Remove hidden tools, resources and prompts from a status."""
        merged = self.merged
        gateway = {"tools": merged.tool_count, "catalog": merged.version[:12], "search": {}}
        status["gateway"] |= gateway
        for server in status["servers"]:
            namespaced = merged.namespaced_offers.get(server["server"])
            lists = {} if namespaced is None else namespaced.offer.lists
            counts = {kind: len(listed.keys) for kind, listed in lists.items()}
            server |= {"changes": [], "warnings": [], "omitted": {}, "lists": counts}
            server["tools"] = counts.get("tools", 0)

    def catalog(self, request: Request, context: Context) -> Catalog | None:
        """Return the catalog, the same for all clients; None while the very first list waits."""
        if self._awaits_first_list and request.method in LISTS:
            members = [self._registry.members[name] for name in self.servers()]
            remote = [m for m in members if not m.is_in_process or m.is_pending]
            if remote and all(member.is_pending for member in remote):
                return None
            self._awaits_first_list = False
        registry, known = self._registry, self._catalog
        if known is not None and known[0] is registry.merged and known[1] is registry.config:
            return known[2]
        try:
            return self.now()
        except ViewPending:
            if request.method not in UNLEARNED_S:
                raise
            # Whatever is listed once the views are known differs from this.
            made = self._published = self._catalog_of(Merged(()), is_known=False)
            return made

    async def ready(self, request: Request, context: Context) -> None:
        """Wait briefly for servers that were never listed: many clients request lists only once."""
        members = [self._registry.members[name] for name in self.servers()]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_LIST_TIMEOUT_S):
                await asyncio.gather(
                    *(self._registry.wait_for_catalog(m.name) for m in members if not m.problem)
                )
        self._awaits_first_list = False

    def hub(self, request: Request, context: Context) -> ChangeHub:
        """Return the hub that publishes changes."""
        return self._hub

    def published(self) -> list[tuple[Catalog, ChangeHub]]:
        """Return nothing: it publishes all changes itself."""
        return []

    def on_initialize(self, request: Request, context: Context) -> None:
        """Have questions name their server; without tasks here, a client cannot have any."""
        session = context.session
        assert session is not None
        if self._tasks is None:
            session.capabilities = without_tasks(session.capabilities)
        session.names_servers = True

    def now(self) -> Catalog:
        """Return the current catalog."""
        everything, config = self._registry.merged, self._registry.config
        known = self._catalog
        if known is None or known[0] is not everything or known[1] is not config:
            made = self._catalog_of(self.merged)
            known = self._catalog = (everything, config, made)
            if self._published is None:
                self._published = made
        return known[2]

    def _catalog_of(self, merged: Merged, *, is_known: bool = True) -> Catalog:
        """Return the catalog of these offers; it expires at once if they are not known yet."""
        self._revision += 1
        summary = self._summarize(merged, self.servers())
        identity = self._identity()
        if not self._registry.is_composition:
            words = merged_instructions(summary, searches=self._searches)
            identity = msgspec.structs.replace(identity, instructions=words)
        if not is_known:
            identity = msgspec.structs.replace(identity, ttl_ms=0)
        offer = self._offer(merged, self._registry.config, summary)
        return Catalog(offer, identity, number=self._revision)

    def _offer(self, merged: Merged, config: Config, summary: str) -> Offer:
        with_pages: Listed | None = None
        if self._searches:
            limit = config.search.default_limit
            own = metatool_definitions.meta_tools(summary, merged.tool_count, limit)
            agents = [name for name in AGENT_TOOL_NAMES if name in merged.tools]
            direct = merged.listed("tools", [*agents, *config.gateway.pinned])
            items, keys = (*own.values(), *direct.items), (*own, *direct.keys)
            tools = Listed(items=items, keys=keys)
            pages = [name for name in merged.with_ui() if name not in direct.keys]
            with_pages = shortened_tools(merged.listed("tools", pages))
        else:
            tools = merged.listed("tools")
        if not self._registry.is_composition:
            tools = hinted(tools, merged, config.gateway.pinned, self._tags)
        if with_pages is not None:
            items, keys = (*tools.items, *with_pages.items), (*tools.keys, *with_pages.keys)
            tools = Listed(items=items, keys=keys)
        if self._tasks is not None and not self._registry.is_composition and self._tasks():
            own = task_tools()
            listed = self._without_schemas(tools, merged, config)
            tools = Listed(items=(*listed, *own.values()), keys=(*tools.keys, *own))
        rest = {kind: merged.listed(kind) for kind in KINDS if kind != "tools"}
        return Offer(
            lists={"tools": tools, **rest},
            completions=True,
            subscriptions=True,
            # Capabilities cannot be declared later, when a server adds the first of a kind.
            declared=frozenset(_KINDS if self._tasks is None else (*_KINDS, "tasks")),
        )

    def _tags(self, server: str) -> tuple[str, ...]:
        member = self._registry.members.get(server)
        return () if member is None else member.entry.tags

    def _without_schemas(self, tools: Listed, merged: Merged, config: Config) -> Iterator[bytes]:
        """Return definitions without the output schemas of those tools whose calls can become
        tasks: official clients refuse any other result than one of the schema."""
        for name, raw in zip(tools.keys, tools.items, strict=True):
            route = merged.tools.get(name)
            member = None if route is None else self._registry.members.get(route[0].server)
            if member is None or member.delegates or config.budget_s(member.name) is None:
                yield raw
            else:
                yield without_output_schema(raw)

    def publish_changes(self) -> None:
        """Notify clients of the lists that differ from those last published."""
        before = self._published
        if before is None:
            return  # no client has requested a list
        try:
            now = self._published = self.now()
        except ViewFailed:
            return  # clients get an error for every list, and the lists when a view works again
        for kind in now.changed(before):
            self._hub.publish(Change(kind))

    def publish_update(self, server: str, change: Change) -> None:
        """Notify clients that a resource of a server has changed."""
        if server not in self.whole.namespaced_offers:
            return
        shown = self.whole.routing.exposed_uri(server, change.uri)
        params = change.params if shown == change.uri else encode({"uri": shown})
        self._hub.publish(Change("resources", shown, params))
