"""What one doorway of the gateway shows its clients, and how they hear that it has changed."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from portico.catalog.catalog import Catalog, Identity
from portico.catalog.merge import Merged, View
from portico.config.schema import Config
from portico.gateway import metatool_definitions
from portico.gateway.member import Member
from portico.model.context import Context
from portico.model.message import Request
from portico.model.methods import LISTS
from portico.model.offer import KINDS, Listed, Offer
from portico.model.types import Change
from portico.protocol.codec import encode
from portico.protocol.tasks import without_tasks
from portico.state.hub import ChangeHub

_KINDS = ("tools", "resources", "prompts")
FIRST_LIST_TIMEOUT_S = 10.0
"""How long the very first list waits for what servers offer."""

INSTRUCTIONS = (
    "Portico is one doorway to several MCP servers. Call search_tools to find a tool for what you "
    "need, then execute_tool with its name and arguments; describe_tool tells all about one."
)


class MemberRegistry(Protocol):
    """What is behind all doorways."""

    config: Config
    merged: Merged
    members: dict[str, Member]

    async def wait_for_catalog(self, server: str) -> None:
        """Wait, but not for ever, until a server says what it offers."""
        ...


class Exposure:
    """The lists of a doorway: made once for what is behind it at a time."""

    def __init__(
        self,
        registry: MemberRegistry,
        identity: Identity,
        *,
        searches: bool,
        summarize: Callable[[Merged, Sequence[str]], str],
        servers: Callable[[], Sequence[str]] | None = None,
    ) -> None:
        """`searches` shows the meta-tools and what is pinned instead of every tool; `told` says in
        few words what is behind; `servers` names those of a group."""
        self._views: Sequence[View] = ()
        self.is_filtered = False
        """True if something may be hidden."""
        self._registry = registry
        self._identity = identity
        self._searches = searches
        self._summarize = summarize
        self._group = servers
        self._visible: tuple[Merged, Config, Merged] | None = None
        self._catalog: tuple[Merged, Config, Catalog] | None = None
        self._published: Catalog | None = None
        self._revision = 0
        self._hub = ChangeHub()
        self._awaits_first_list = not searches

    def servers(self) -> Sequence[str]:
        """The servers it leads to, in order."""
        if self._group is None:
            return list(self._registry.members)
        return [name for name in self._group() if name in self._registry.members]

    @property
    def merged(self) -> Merged:
        """All that these offer now, as far as it is to be seen."""
        whole = self._registry.merged
        if self._group is None and not self._views:
            return whole
        config = self._registry.config
        if self._visible is None or self._visible[0] is not whole or self._visible[1] is not config:
            here = whole if self._group is None else whole.only(frozenset(self.servers()))
            self._visible = (whole, config, here.through(self._views) if self._views else here)
        return self._visible[2]

    def filter_by(self, views: Sequence[View]) -> "Exposure":
        """Show only what is to be seen through these views; of the meta-tools, all."""
        self._views = views
        self.is_filtered = True
        return self

    def hides(self, server: str, uri: str) -> bool:
        """True if a server has this resource or template, but clients must not see it."""
        if not self._views:
            return False
        whole, seen = (
            self._registry.merged.namespaced_offers.get(server),
            self.merged.namespaced_offers.get(server),
        )
        return whole is not None and seen is not None and whole.hides(uri, seen)

    def redact_status(self, status: dict[str, Any]) -> None:
        """Leave in a status only what may be known here."""
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
        """What is shown, to everybody alike; the very first list waits for something to show."""
        if self._awaits_first_list and request.method in LISTS:
            members = [self._registry.members[name] for name in self.servers()]
            asked = [member for member in members if not member.is_local]
            if asked and all(member.is_pending for member in asked):
                return None
            self._awaits_first_list = False
        registry, known = self._registry, self._catalog
        if known is not None and known[0] is registry.merged and known[1] is registry.config:
            return known[2]
        return self.now()

    async def ready(self, request: Request, context: Context) -> None:
        """Wait, but not long, for servers of which nothing was ever known: many clients ask for
        lists once."""
        members = [self._registry.members[name] for name in self.servers()]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_LIST_TIMEOUT_S):
                await asyncio.gather(
                    *(self._registry.wait_for_catalog(m.name) for m in members if not m.problem)
                )
        self._awaits_first_list = False

    def hub(self, request: Request, context: Context) -> ChangeHub:
        """Who hears of changes."""
        return self._hub

    def on_initialize(self, request: Request, context: Context) -> None:
        """A legacy client has said hello: it follows no tasks here, and is told who asks."""
        session = context.session
        assert session is not None
        session.capabilities = without_tasks(session.capabilities)
        session.names_servers = True

    def now(self) -> Catalog:
        """The snapshot of now."""
        merged, config = self.merged, self._registry.config
        known = self._catalog
        if known is None or known[0] is not merged or known[1] is not config:
            self._revision += 1
            behind = self._summarize(merged, self.servers())
            identity = self._identity
            if self._searches:
                words = f"{INSTRUCTIONS} Servers: {behind}"
                identity = msgspec.structs.replace(identity, instructions=words)
            made = Catalog(self._offer(merged, config, behind), identity, number=self._revision)
            known = self._catalog = (merged, config, made)
            if self._published is None:
                self._published = made
        return known[2]

    def _offer(self, merged: Merged, config: Config, behind: str) -> Offer:
        if self._searches:
            limit = config.search.default_limit
            own = metatool_definitions.meta_tools(behind, merged.tool_count, limit)
            direct = merged.listed("tools", [*config.gateway.pinned, *merged.with_ui()])
            items, keys = (*own.values(), *direct.items), (*own, *direct.keys)
            tools = Listed(items=items, keys=keys)
        else:
            tools = merged.listed("tools")
        rest = {kind: merged.listed(kind) for kind in KINDS if kind != "tools"}
        return Offer(
            lists={"tools": tools, **rest},
            completions=True,
            subscriptions=True,
            # What a server brings later could not be declared any more then.
            declared=frozenset(_KINDS),
        )

    def publish_changes(self) -> None:
        """Tell clients which lists are really others than they were when last told."""
        before = self._published
        if before is None:
            return  # nobody has ever asked
        now = self._published = self.now()
        for kind in now.changed(before):
            self._hub.publish(Change(kind))

    def publish_update(self, server: str, change: Change) -> None:
        """A resource of a server has changed."""
        if server not in self.merged.namespaced_offers:
            return
        shown = self.merged.routing.exposed_uri(server, change.uri)
        params = change.params if shown == change.uri else encode({"uri": shown})
        self._hub.publish(Change("resources", shown, params))
