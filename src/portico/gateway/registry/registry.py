"""The registry of a gateway's members: started, merged, reloaded with the config, closed."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from portico.core.catalog.catalog import Catalog, Identity
from portico.core.catalog.exposed_names import SEPARATOR
from portico.core.catalog.merge import Clash, Merged
from portico.core.config.schema import Config
from portico.core.model.offer import KINDS
from portico.core.model.types import Change, Link, Report
from portico.core.model.wording import did_you_mean
from portico.core.state.background import Background
from portico.core.state.memory import give_back_memory
from portico.edge.fit.exposure_choice import GatewayFacts
from portico.gateway.endpoints.endpoints import IN_FOLDER, GatewayEndpoints
from portico.gateway.endpoints.exposure import FIRST_LIST_TIMEOUT_S, Exposure
from portico.gateway.endpoints.middle_links import CompositionOrder
from portico.gateway.endpoints.router import CallRecorder, Router
from portico.gateway.members.in_process_server import InProcessEntry
from portico.gateway.members.member import GATEWAY_CAPABILITY, Entry, Member
from portico.gateway.members.member_kinds import MemberEnvironment, MemberLimits, member_of
from portico.gateway.registry.folders import Folders
from portico.gateway.registry.tool_search import ToolSearch
from portico.library.chain.endpoint import ChainEndpoint
from portico.library.chain.views import Views
from portico.upstream.connections.upstream import Upstream

if TYPE_CHECKING:
    from portico.gateway.endpoints.gateway_tasks import GatewayTasks
    from portico.gateway.search.index import Hit
    from portico.gateway.search.searcher import Searcher

MIN_TOOLS_FOR_SEARCH = 30
"""From this many tools on, a model searches instead of reading them all."""
_MANY_TOOLS = 1_000
"""From this many tools on, a refresh needs tens of megabytes for a moment."""
_START_DELAY_S = 0.5
"""If all catalogs are known, clients connect first: starting many servers takes all cores."""
_MAX_WARNINGS = 1_000
"""The limit on reported warnings: a server that keeps changing must not fill the log."""
CATALOG_TIMEOUT_S = 30.0
"""The time that a call waits for an unknown server; many clients wait for a minute."""
PUBLISH_DELAY_S = 0.5
"""Changes within this time are published together."""
SETTLE_DELAY_S = 3.0
"""The same while several servers are being refreshed, which finish one after the other."""


class CompositionRules(Struct, frozen=True, kw_only=True):
    """How the members form one server of their own, without the meta-tools of a gateway."""

    identity: Callable[[], Identity]
    """Returns the identity of the server, once the members are known."""
    prefixed: bool = False
    """True for names such as `calc__add`; else names are plain, and must be unique."""
    order: tuple[str, ...] = ()
    """The names of the members, the first in the chain first."""
    shadows: frozenset[str] = frozenset()
    """Names that a member may have although a later one has them too."""
    links: Mapping[str, Sequence[Link]] = {}
    """The links in front of single members, by their names."""


class Registry:
    """The gateway without its transports."""

    def __init__(
        self,
        config: Config,
        environment: MemberEnvironment,
        *,
        version: str,
        searcher: "Callable[[], Searcher] | None",
        report_failure: Report,
        record_call: CallRecorder,
        expose: str | None = None,
        links: Sequence[Link] = (),
        local: Mapping[str, InProcessEntry] | None = None,
        rules: CompositionRules | None = None,
        tasks: "GatewayTasks | None" = None,
        folder: str = "",
    ) -> None:
        """`searcher` is called when first needed, None for a composition, which has no search;
        `expose` overrides the config; `report_failure`
        logs exceptions, `record_call` every call; `links` are before every endpoint; `local` are
        members in this process, beside the servers of the config; `rules` are those of a
        composition, None for a gateway; without `tasks`, no call becomes a task; `folder` is that
        of its clients, empty for the gateway's own."""
        self.config = config
        self.folder = folder or environment.folder
        self._environment = environment
        self._searcher = searcher
        self._tool_search = ToolSearch(searcher)
        self.report_failure = report_failure
        self._record_call = record_call
        self.started = time.time()
        self._version = version
        self._report = environment.report
        self.local = local or {}
        self._rules = rules
        self._warned: set[str] = set()
        self.members: dict[str, Member] = {}
        self.members = self._make_members()
        self.merged = self._merged(None)
        # Decided once: a client must not find other tools than those it has listed.
        self.expose = config.gateway.expose
        self._is_counted = not self._is_unknown()
        self._has_many = not self._is_counted or self.merged.tool_count >= MIN_TOOLS_FOR_SEARCH
        self._given_expose = expose
        self.counting: asyncio.Task[None] | None = None
        """The wait for the number of tools, while it is not known."""
        self.searches = self.resolves_to_search(expose)
        self._tasks = tasks
        self._endpoints = GatewayEndpoints(self, links, record_call, tasks)
        if tasks is not None and not folder:
            tasks.serve(self, self._endpoint_for_tasks)
        forget = None if tasks is None else tasks.forget
        self.folders = Folders(self, environment.folder, forget)
        self._draining: set[Member] = set()
        """Members that were removed from the config and are not closed yet."""
        self._background = Background()
        self._reloads: dict[str, asyncio.Task[None]] = {}
        """The last reload of each component."""
        self._publish_timer: asyncio.TimerHandle | None = None
        self._searched_offers: tuple[Merged, dict[str, bytes], Merged] | None = None

    def endpoint(self, group: str | None = None, searches: bool | None = None) -> ChainEndpoint:
        """Return the endpoint of all servers or of a group; KeyError if there is no such group.
        `searches` overrides the exposure."""
        return self._endpoints.endpoint(group, searches)

    def server_endpoint(self, server: str) -> ChainEndpoint | None:
        """Return the endpoint of one server, under its own names; None if it is unknown."""
        return self._endpoints.server_endpoint(server)

    def _endpoint_for_tasks(self, at: str) -> object:
        return self.at(at)._endpoints.endpoint_for_tasks(at.partition(IN_FOLDER)[0])

    def at(self, at: str) -> "Registry":
        """Return the registry of the endpoint that a task names; raises McpError."""
        return self.folders.registry(at.partition(IN_FOLDER)[2])

    @property
    def is_composition(self) -> bool:
        """True if the members form one server, each with those after it as its downstream."""
        return self._rules is not None

    def check_links(self) -> None:
        """Raise NameClash if a link adds a name that a known catalog has already."""
        if self._endpoints.links or (self._rules is not None and self._rules.links):
            self.endpoint().check_names()

    def relink(self, links: Sequence[Link]) -> None:
        """Replace the links before every endpoint. If a link raises, or adds a name that exists,
        the old ones stay."""
        self._endpoints.relink(links)
        for registry in self.folders:
            registry.relink(links)

    def resolves_to_search(self, expose: str | None) -> bool:
        """True if this value of `expose` means search; None is the config's value."""
        expose = expose or self.expose
        return self._has_many if expose == "auto" else expose == "search"

    def start_counting(self) -> None:
        """Wait for the catalogs of the very first start, up to a timeout, if the number of tools
        decides what clients are shown: a first start shows what later ones do."""
        if not self._is_counted and self._rules is None:
            self.counting = self._background.start(self._count_tools())

    async def _count_tools(self) -> None:
        waiting = [self.wait_for_catalog(name) for name in self.members]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_LIST_TIMEOUT_S):
                await asyncio.gather(*waiting)
        coming = any(one.is_pending and not one.problem for one in self.members.values())
        count = self.merged.tool_count
        self._is_counted = not coming or count >= MIN_TOOLS_FOR_SEARCH
        self._has_many = coming or count >= MIN_TOOLS_FOR_SEARCH
        self.searches = self.resolves_to_search(self._given_expose)
        self.counting = None

    def facts(self) -> GatewayFacts:
        """Return the facts that decide what a client is shown."""
        many, is_counted = MIN_TOOLS_FOR_SEARCH, self._is_counted
        return GatewayFacts(self.config.clients, self.expose, self._has_many, many, is_counted)

    def shown(self, searches: bool) -> Catalog:
        """Return the catalog of all servers in one exposure, as far as it is known."""
        return self._endpoints.shown(searches)

    def identity(self) -> Identity:
        """Return the identity that clients see."""
        if self._rules is not None:
            return self._rules.identity()
        id = self._environment.gateway
        return Identity(
            name="portico",
            version=self._version,
            more={"title": "Portico"},
            experimental={GATEWAY_CAPABILITY: {"id": id}} if id else {},
        )

    def _is_unknown(self) -> bool:
        """True while no server's tools are known."""
        return all(member.is_pending for member in self.members.values())

    def _merged(self, before: Merged | None) -> Merged:
        found = (member.namespaced for member in self.members.values())
        known = (namespaced for namespaced in found if namespaced is not None)
        if self._has_prefixes:
            return Merged(known)
        return Merged(known, prefixed=False, owners=None if before is None else before.owners())

    @property
    def _has_prefixes(self) -> bool:
        return self._rules is None or self._rules.prefixed

    def clashes(self) -> list[Clash]:
        """Return the names that two members of a composition offer, without the shadowed ones."""
        shadows = frozenset() if self._rules is None else self._rules.shadows
        return [one for one in self.merged.all_duplicates() if one.key not in shadows]

    def names(self) -> list[str]:
        """Return the names and URIs that the members offer."""
        return [name for kind in KINDS for name in self.merged.routes(kind)]

    def _entries(self, config: Config) -> dict[str, Entry]:
        enabled = {name: entry for name, entry in config.entries.items() if entry.enabled}
        found: dict[str, Entry] = {**enabled, **self.local}
        order = () if self._rules is None else self._rules.order
        return {name: found[name] for name in order if name in found} | found

    def _make_members(self) -> dict[str, Member]:
        entries = self._entries(self.config)
        return {name: self._member(entry) for name, entry in entries.items()}

    def _member(self, entry: Entry) -> Member:
        gateway = self.config.gateway
        limit = gateway.name_limit if self._has_prefixes else None
        limits = MemberLimits(self.config.path, limit, gateway.max_tools)
        made = member_of(entry, self._environment, limits)
        made.provider.watch(lambda change: self._on_change(made, change))
        return made

    def start(self) -> None:
        """Refresh all servers in the background; known catalogs are served meanwhile."""
        self._warn()
        self._background.start(self._refresh_unconfirmed())

    def start_refresh(self) -> None:
        """Refresh all servers in the background, including those already refreshed."""
        self._background.start(self.refresh(self.members))

    async def _refresh_unconfirmed(self) -> None:
        if not any(member.is_pending for member in self.members.values()):
            await asyncio.sleep(_START_DELAY_S)
        await self.refresh(
            name
            for name, m in self.members.items()
            # Those in this process only start their lifespans. A server that has failed by now is
            # tried again when it is used.
            if m.is_in_process or not (m.is_confirmed or m.refreshing or m.problem)
        )

    async def wait_for_catalog(self, server: str) -> None:
        """Wait until a server's catalog is known, up to a timeout; refresh it if needed."""
        member = self.members.get(server)
        if member is None:
            return
        if member.provider.offered() is not None and not member.lacks_tools:
            return
        refreshed = member.refreshing or self._background.start(self.refresh([server]))
        await asyncio.wait({refreshed}, timeout=CATALOG_TIMEOUT_S)

    async def refresh(self, servers: Iterable[str]) -> None:
        """Fetch the catalogs of these servers; a server that fails keeps its last known one."""
        chosen = [self.members[name] for name in servers if name in self.members]
        names = [member.name for member in chosen]
        differing = (registry.refresh_differing(names) for registry in self.folders)
        await asyncio.gather(*(self._survey(member) for member in chosen), *differing)
        self._changed()
        for registry in self.folders:
            registry.list_missing()
        self._check_pinned({member.name for member in chosen})
        if self._publish_timer is not None and not self._count_refreshing():
            self._publish_in(PUBLISH_DELAY_S)
        if self.merged.tool_count > _MANY_TOOLS:
            await asyncio.to_thread(give_back_memory)  # a refresh needs far more than is kept

    async def _survey(self, member: Member) -> None:
        before = member.problem
        await member.fetch_catalog()
        if self.members.get(member.name) is not member:
            return
        # A problem of the entry was reported before, and one of a retry that fails again too.
        if member.problem not in ("", member.entry.problem, before):
            self._report(member.problem)
        if member.is_due:
            self._retry_in(member, member.retry_pause_s)

    def _retry_in(self, member: Member, pause_s: float) -> None:
        """Refresh a member after a pause, unless it was refreshed by then."""

        def retry() -> None:
            member.retry = None
            is_current = self.members.get(member.name) is member
            if is_current and member.is_due and member.refreshing is None:
                self._background.start(self.refresh([member.name]))

        if member.retry is not None:
            member.retry.cancel()
        member.retry = asyncio.get_running_loop().call_later(pause_s, retry)

    def _check_pinned(self, servers: set[str]) -> None:
        """Report pinned names that are not tools of these servers."""
        for name in self.config.gateway.pinned:
            server = name.partition(SEPARATOR)[0]
            known = server in servers and server in self.merged.namespaced_offers
            if known and self.merged.tool(name) is None:
                meant = did_you_mean(self.similar_names(name, 1))
                hint = f"; {meant}" if meant else ""
                self._report(f"gateway.pinned: {server} has no tool {name!r}{hint}")

    @property
    def is_installing(self) -> bool:
        """True while a server is being installed, or lists its tools after that."""
        providers = (member.provider for member in self._own_members())
        if any(isinstance(one, Upstream) and one.is_installing for one in providers):
            return True
        return any(registry.is_installing for registry in self.folders)

    async def finish_installing(self) -> None:
        """Wait until the servers that are being installed are listed; install no others before
        there is a client again."""
        self._environment.installs.hold()
        while self.is_installing:  # noqa: ASYNC110  (no single event)
            await asyncio.sleep(0.1)

    def resume_installing(self) -> None:
        """Install the servers that wait for a client."""
        self._environment.installs.resume()

    def _on_change(self, member: Member, change: Change) -> None:
        if self.members.get(member.name) is not member:
            return  # it was removed from the config
        if change.uri:
            self._endpoints.publish_update(member.name, change)
            for registry in self.folders:
                registry.shared_changed(member, change)
        else:
            member.problem = member.listing_problem()
            self._changed()

    def _changed(self) -> None:
        """Merge the offers again, and publish the result if it differs."""
        merged = self._merged(self.merged)
        before = self.merged.namespaced_offers
        if [*merged.namespaced_offers.values()] == [*before.values()]:
            return
        self.merged = merged
        if self._tasks is not None:
            self._tasks.update_required()
        if self._tool_search.is_needed:
            self._index()
        self._schedule_publish()
        self._warn()
        for registry in self.folders:
            registry._changed()

    def _warn(self) -> None:
        """Report hidden characters and name clashes of servers, each once."""
        now = {words for name in self.members for words in self._warnings(name)}
        for words in sorted(now - self._warned):
            self.warn_once(words)

    def warn_once(self, words: str) -> None:
        """Report something to the operator, each text once."""
        if words not in self._warned and len(self._warned) < _MAX_WARNINGS:
            self._warned.add(words)
            self._report(words)

    def _warnings(self, server: str) -> list[str]:
        hidden = [] if self._has_prefixes else self.clashes()
        return [
            *self.members[server].warnings(),
            *self.merged.clashes.get(server, ()),
            *(f"{one}; the second is hidden" for one in hidden if one.newcomer == server),
        ]

    def _count_refreshing(self) -> int:
        return sum(member.refreshing is not None for member in self.members.values())

    def _schedule_publish(self) -> None:
        if self._publish_timer is None:
            self._publish_in(SETTLE_DELAY_S if self._count_refreshing() > 1 else PUBLISH_DELAY_S)

    def _publish_in(self, pause_s: float) -> None:
        if self._publish_timer is not None:
            self._publish_timer.cancel()
        self._publish_timer = asyncio.get_running_loop().call_later(pause_s, self._publish)

    def _publish(self) -> None:
        self._publish_timer = None
        self._endpoints.publish_changes()

    async def recompose(
        self, local: Mapping[str, InProcessEntry], links: Sequence[Link], rules: CompositionRules
    ) -> None:
        """Apply changed members in this process, and changed links; raises if a link fails, and
        changes nothing then."""
        before = self._rules
        try:
            self._use_rules(rules)
            self.relink(links)
        except BaseException:
            self._use_rules(before)
            self.relink(self._endpoints.links)
            raise
        await self.apply(self.config, local)

    def _use_rules(self, rules: CompositionRules | None) -> None:
        self._rules = rules
        for exposure, router in self._endpoints.exposures():
            router.order = self.order_of(router, exposure)

    def order_of(self, router: Router, exposure: Exposure) -> CompositionOrder | None:
        """Return the order of a composition; None in a gateway."""
        if self._rules is None:
            return None
        names, links = self._rules.order or tuple(self.members), self._rules.links
        return CompositionOrder(names, links, lambda: exposure.whole, router.call, self._views)

    def _views(self, links: Sequence[Link]) -> Views:
        return Views(links, self.report_failure, self.warn_once)

    async def apply(
        self, config: Config, local: Mapping[str, InProcessEntry] | None = None
    ) -> None:
        """Apply a changed config, and changed members in this process.

        Servers whose entries differ only in description keep running; removed servers finish
        their running calls.
        """
        if local is not None:
            self.local = local
        wanted = self._entries(config)
        before_it = self.config.gateway
        remade = (config.gateway.name_limit, config.gateway.max_tools) != (
            before_it.name_limit,
            before_it.max_tools,
        )
        self.config = config
        before = self.members
        kept = {
            name: member
            for name, member in before.items()
            if not remade and name in wanted and member.adopt(wanted[name])
        }
        self.members = {
            name: kept.get(name) or self._member(entry) for name, entry in wanted.items()
        }
        for name, member in before.items():
            if name not in kept:
                self._retire(member, self.members.get(name))
        self._changed()
        self._lead_folders()
        if self._tasks is not None:
            self._tasks.update_required()
        self._schedule_publish()  # pinned tools or groups may have changed
        await self.refresh([name for name in self.members if name not in kept])

    def _lead_folders(self) -> None:
        for registry in self.folders:
            registry.follow()

    def _retire(self, member: Member, heir: Member | None) -> None:
        """Close a member when its calls have finished; its clients continue with the heir."""
        member.stop_saving()
        self._draining.add(member)
        self._background.start(self._drain(member))
        new, old = None if heir is None else heir.provider, member.provider
        if isinstance(new, Upstream) and isinstance(old, Upstream):
            new.adopt_clients(old)

    def start_reload(self, name: str) -> None:
        """Load a component again in the background, because its file has changed."""
        earlier = self._reloads.pop(name, None)
        if earlier is not None:
            earlier.cancel()
        self._reloads[name] = self._background.start(self._reload(name))

    async def _reload(self, name: str) -> None:
        """Replace a component once the new one has listed its tools. If that fails, the old one
        stays."""
        old = self.members.get(name)
        if old is None:
            return
        new = self._member(self._entries(self.config)[name])
        is_adopted = False
        try:
            await new.fetch_catalog()
            is_current = self.members.get(name) is old
            if new.problem:
                self._report(f"{name} not reloaded:\n{new.problem}")
            if new.problem and old.provider.offered() is not None:
                old.problem = f"not reloaded: {new.problem}"
            elif is_current:
                self.members = {**self.members, name: new}
                self._retire(old, new)
                is_adopted = True
        finally:
            if not is_adopted:
                await asyncio.shield(new.provider.close())
        if is_adopted:
            if not new.problem:
                self._report(f"{name} reloaded: its file has changed")
            self._changed()
            self._lead_folders()
            self._schedule_publish()

    async def change_account(self, place: str) -> list[str]:
        """Use the login that is stored now for a place; return the servers that are there."""
        providers = [member.provider for member in self.members.values()]
        upstreams = [one for one in providers if isinstance(one, Upstream)]
        changed = [one.name for one in upstreams if await one.change_account(place)]
        await self.refresh(changed)
        return changed

    async def _drain(self, member: Member) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + self.config.gateway.drain
        while member.provider.is_busy and loop.time() < until:  # noqa: ASYNC110  (no single event)
            await asyncio.sleep(0.1)
        # The end of the gateway must not interrupt this.
        await asyncio.shield(member.provider.close())
        self._draining.discard(member)

    async def close(self) -> None:
        """Close all servers concurrently, and those in this process in reverse order."""
        if self._publish_timer is not None:
            self._publish_timer.cancel()
        self.folders.keep()
        await self._background.close()
        await self._tool_search.close()
        self._end_installs()
        await self.folders.close()
        members = (*self._own_members(), *self._draining)
        for member in members:
            if member.retry is not None:
                member.retry.cancel()
        local = [member for member in members if member.is_in_process]
        others = (member.provider.close() for member in members if not member.is_in_process)
        await asyncio.gather(_close_in_turn(reversed(local)), *others)

    def _own_members(self) -> Iterable[Member]:
        """Return the members that end with this registry."""
        return self.members.values()

    def _end_installs(self) -> None:
        """Give running installers the time of a drain."""
        self._environment.installs.end_in(self.config.gateway.drain)

    async def search(
        self, query: str, limit: int, server: str | None, servers: frozenset[str]
    ) -> "Sequence[Hit]":
        """Return the best tools for a query. Servers that could have more, but failed, are tried
        again in the background."""
        for name in servers if server is None else (server,):
            member = self.members.get(name)
            if member is not None and member.retry is not None:
                self._retry_in(member, 0)
        self._index()
        everything = servers >= self.members.keys()
        scope = None if everything else servers
        return await self._tool_search.search(query, limit, server, scope)

    def indexed_count(self) -> int | None:
        """Return the number of indexed tools; None if all are indexed."""
        return self._tool_search.indexed

    def similar_names(self, name: str, limit: int) -> list[str]:
        """Return the names of tools that are similar to a name."""
        return self._tool_search.similar_names(self._searched(), name, limit)

    def status(self, servers: Iterable[str] | None = None) -> dict[str, Any]:
        """Return the state of the gateway and of these servers."""
        names = self.members if servers is None else servers
        return {
            "gateway": {
                "version": self._version,
                "expose": "search" if self.searches else "all",
                "tools": self.merged.tool_count,
                "catalog": self.merged.version[:12],
                "search": self._tool_search.status(),
                "uptime_s": round(time.time() - self.started, 1),
            },
            "servers": [
                {
                    **self.members[name].status(),
                    **self._in_folders(name),
                    "warnings": self._warnings(name),
                }
                for name in names
                if name in self.members
            ],
        }

    def _in_folders(self, server: str) -> dict[str, Any]:
        """Return the state of a server's processes in the folders of windows, if there are any."""
        placed = [registry.members.get(server) for registry in self.folders]
        found = [
            {key: status[key] for key in ("folder", "state", "tools", "starts", "error")}
            for member in placed
            if member is not None and member is not self.members[server]
            if (status := member.status())["starts"]
        ]
        return {"folders": found} if found else {}

    @property
    def requires_tasks(self) -> bool:
        """True if a tool of a member runs only as a task, in any folder, or stores tasks."""
        registries = (self, *self.folders)
        every = [one for registry in registries for one in registry.members.values()]
        return any(one.requires_tasks or one.delegates for one in every)

    def pending(self, servers: Iterable[str]) -> list[str]:
        """Return those servers whose tools were never listed."""
        known, members = self.merged.namespaced_offers, self.members
        there = [name for name in servers if name in members]
        return [name for name in there if name not in known or members[name].lacks_tools]

    def _index(self) -> None:
        tags = {name: " ".join(member.entry.tags) for name, member in self.members.items()}
        self._tool_search.use(self._searched(), tags)

    def _searched(self) -> Merged:
        """Return all offers, with the tools that links add at any endpoint."""
        if not self._endpoints.links:
            return self.merged
        added = self._endpoints.added_tools()
        if self._searched_offers is None or self._searched_offers[:2] != (self.merged, added):
            whole = self.merged.adding_tools(added) if added else self.merged
            self._searched_offers = (self.merged, added, whole)
        return self._searched_offers[2]


async def _close_in_turn(members: Iterable[Member]) -> None:
    for member in members:
        await member.provider.close()
