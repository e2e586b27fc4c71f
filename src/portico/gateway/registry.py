"""All servers of a config, kept behind one gateway: started, asked, merged, and let go."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from portico.catalog.catalog import Identity
from portico.catalog.exposed_names import SEPARATOR
from portico.catalog.merge import Merged
from portico.chain.endpoint import ChainEndpoint
from portico.chain.exactly import exactly
from portico.config.schema import Config
from portico.gateway.exposure import Exposure
from portico.gateway.local_server import LocalEntry
from portico.gateway.member import GATEWAY, Entry, Member
from portico.gateway.member_kinds import MemberEnvironment, MemberLimits, member_of
from portico.gateway.metatools import MetaTools
from portico.gateway.qualified_links import QualifiedLinks
from portico.gateway.router import Router, Witness
from portico.gateway.summary import Behind, blurb
from portico.gateway.tool_search import ToolSearch
from portico.model.context import Context
from portico.model.message import Request, Response
from portico.model.types import Change, Link, Provider, Report
from portico.model.wording import did_you_mean
from portico.observe.observing import observing
from portico.state.background import Background
from portico.state.memory import give_back_memory
from portico.upstream.upstream import Upstream

if TYPE_CHECKING:
    from portico.search.index import Hit
    from portico.search.searcher import Searcher

SEARCH_FROM = 30
"""So many tools, and a model had better search than read them all."""
_MANY = 1_000
"""So many tools, and asking for them all needs tens of megabytes for a moment."""
_GREETING_S = 0.5
"""Where all is known, clients are greeted first: many servers that start take all the cores."""
_MAX_WARNINGS = 1_000
"""That are reported in all: a server that keeps changing must not fill the log."""
LEARN_S = 30.0
"""A call of a server that nobody knows yet waits so long for it; many clients wait for a minute."""
ANNOUNCE_S = 0.5
"""What changes within this time is told at once."""
SETTLE_S = 3.0
"""The same while several servers are being asked, which answer one after the other."""


class Registry:
    """The gateway without its transports."""

    def __init__(
        self,
        config: Config,
        around: MemberEnvironment,
        *,
        version: str,
        searcher: "Callable[[], Searcher]",
        failed: Report,
        witness: Witness,
        expose: str | None = None,
        links: Sequence[Link] = (),
        local: Mapping[str, LocalEntry] | None = None,
    ) -> None:
        """`searcher` is made when it is first needed; `expose` overrules the config; `failed` tells
        the operator, `witness` is told of every call; `links` are in front of every doorway;
        `local` are members of this process, beside the servers of the config."""
        self.config = config
        self._around = around
        self._finder = ToolSearch(searcher)
        self.failed = failed
        self.started = time.time()
        self._version = version
        self._report = around.report
        self._witness = witness
        self._links = links
        self._local = local or {}
        self.members = {name: self._member(entry) for name, entry in self._entries(config).items()}
        self.merged = self._merged()
        # Decided once: what a model has read must stay true.
        self._expose = config.gateway.expose
        self._has_many = self._is_unknown() or self.merged.tool_count >= SEARCH_FROM
        self.searches = self.searching(expose)
        self._doorways: dict[tuple[str, bool], tuple[Exposure, ChainEndpoint]] = {}
        self._alone: dict[str, tuple[Member, ChainEndpoint]] = {}
        self._leaving: set[Member] = set()
        """Those that have left the config and are not closed yet."""
        self._background = Background()
        self._announcing: asyncio.TimerHandle | None = None
        self._warned: set[str] = set()

    # What is behind it.

    def endpoint(self, group: str | None = None, searches: bool | None = None) -> ChainEndpoint:
        """The doorway to all servers, or to a group's; KeyError if there is no such group.
        `searches` overrules what clients are shown here."""
        if group is not None and group not in self.config.groups:
            raise KeyError(group)
        key = (group or "", self.searches if searches is None else searches)
        found = self._doorways.get(key)
        if found is None:
            found = self._doorways[key] = self._doorway(group, key[1])
        return found[1]

    def alone(self, server: str) -> ChainEndpoint | None:
        """The doorway to one server alone, under plain names; None if there is no such server."""
        member = self.members.get(server)
        if member is None:
            self._alone.pop(server, None)
            return None
        known = self._alone.get(server)
        if known is None or known[0] is not member:
            provider = member.provider
            links: list[Link] = [exactly, *member.links]
            if self._links:
                limit = self.config.gateway.name_limit
                links.insert(1, QualifiedLinks(server, self._links, lambda: self.merged, limit))
            observe = observing(partial(self._over_alone, server))
            made = ChainEndpoint(provider, [provider], links, self.failed, observe)
            known = self._alone[server] = (member, made)
        return known[1]

    def searching(self, expose: str | None) -> bool:
        """True if models search where this is asked for; None is what the config says."""
        expose = expose or self._expose
        return self._has_many if expose == "auto" else expose == "search"

    def _doorway(self, group: str | None, searches: bool) -> tuple[Exposure, ChainEndpoint]:
        def servers() -> Sequence[str]:
            there = self.config.groups.get(group or "")
            return there.servers if there is not None else ()

        id = self._around.gateway
        identity = Identity(
            name="portico",
            version=self._version,
            more={"title": "Portico"},
            experimental={GATEWAY: {"id": id}} if id else {},
        )
        exposure = Exposure(
            self,
            identity,
            searches=searches,
            told=self._told,
            servers=servers if group else None,
        )
        metatools = MetaTools(self, exposure)
        router = Router(self, exposure, metatools, self._witness)
        observe = observing(router.over)
        providers: list[Provider] = [router, metatools]
        links = (router.plainly, *self._links) if self._links else ()
        endpoint = ChainEndpoint(
            exposure, providers, links, self.failed, observe, first=[metatools.executing]
        )
        return exposure, endpoint

    def _over_alone(
        self,
        server: str,
        request: Request,
        context: Context,
        response: Response | None,
        took_s: float,
    ) -> None:
        self._witness(request, context, server, request.name or request.uri, response, took_s)

    def _told(self, merged: Merged, servers: Sequence[str]) -> str:
        there = [self.members[name] for name in servers if name in self.members]
        return blurb([Behind(m.name, m.about, merged.namespaced_offers.get(m.name)) for m in there])

    def _is_unknown(self) -> bool:
        """True as long as no server has ever said what it offers."""
        return all(member.is_pending for member in self.members.values())

    def _merged(self) -> Merged:
        namespaced_offers = (member.namespaced for member in self.members.values())
        return Merged(namespaced for namespaced in namespaced_offers if namespaced is not None)

    def _entries(self, config: Config) -> dict[str, Entry]:
        enabled = {name: entry for name, entry in config.servers.items() if entry.enabled}
        return {**enabled, **self._local}

    def _member(self, entry: Entry) -> Member:
        gateway = self.config.gateway
        limits = MemberLimits(self.config.path, gateway.name_limit, gateway.max_tools)
        made = member_of(entry, self._around, limits)
        made.provider.watch(lambda change: self._heard_of(made, change))
        return made

    # What happens to it.

    def start(self) -> None:
        """Ask all servers behind, at the same time: what is known is served meanwhile."""
        self._warn()
        self._background.start(self._ask_all())

    def ask_again(self) -> None:
        """The same, also those that were asked before."""
        self._background.start(self.refresh(self.members))

    async def _ask_all(self) -> None:
        if not any(member.is_pending for member in self.members.values()):
            await asyncio.sleep(_GREETING_S)
        asked = {name for name, one in self.members.items() if one.is_confirmed or one.asked}
        await self.refresh([name for name in self.members if name not in asked])

    async def learn(self, server: str) -> None:
        """Wait, but not for ever, until a server says what it offers; ask it if nobody does."""
        member = self.members.get(server)
        if member is None:
            return
        if member.provider.offered() is not None and not member.lacks_tools:
            return
        asked = member.asked or self._background.start(self.refresh([server]))
        await asyncio.wait({asked}, timeout=LEARN_S)

    async def refresh(self, servers: Iterable[str]) -> None:
        """Ask these servers for all they offer; those that fail keep what is known of them."""
        chosen = [self.members[name] for name in servers if name in self.members]
        await asyncio.gather(*(self._survey(member) for member in chosen))
        self._changed()
        self._check_pinned({member.name for member in chosen})
        if self._announcing is not None and not self._asking():
            self._announce_in(ANNOUNCE_S)
        if self.merged.tool_count > _MANY:
            await asyncio.to_thread(give_back_memory)  # several times what is kept was needed

    async def _survey(self, member: Member) -> None:
        await member.survey()
        is_news = member.problem != member.entry.problem  # the config's are reported with it
        if is_news and self.members.get(member.name) is member:
            self._report(member.problem)

    def _check_pinned(self, servers: set[str]) -> None:
        """Tell of what is pinned and is no tool of these servers."""
        for name in self.config.gateway.pinned:
            server = name.partition(SEPARATOR)[0]
            known = server in servers and server in self.merged.namespaced_offers
            if known and self.merged.tool(name) is None:
                meant = did_you_mean(self.near(name, 1))
                hint = f"; {meant}" if meant else ""
                self._report(f"gateway.pinned: {server} has no tool {name!r}{hint}")

    def _heard_of(self, member: Member, change: Change) -> None:
        if self.members.get(member.name) is not member:
            return  # it has left the config
        if change.uri:
            for exposure, _ in self._doorways.values():
                exposure.updated(member.name, change)
        else:
            member.problem = member.missing()
            self._changed()

    def _changed(self) -> None:
        """Something may be offered now that was not, or the other way round."""
        merged = self._merged()
        before = self.merged.namespaced_offers
        if [*merged.namespaced_offers.values()] == [*before.values()]:
            return
        self.merged = merged
        if self._finder.is_needed:
            self._index()
        self._announce_soon()
        self._warn()

    def _warn(self) -> None:
        """Report what misleads people or models about servers, each thing once."""
        now = {words for name in self.members for words in self._warnings(name)}
        for words in sorted(now - self._warned)[: max(0, _MAX_WARNINGS - len(self._warned))]:
            self._warned.add(words)
            self._report(words)

    def _warnings(self, server: str) -> list[str]:
        return [*self.members[server].warnings(), *self.merged.clashes.get(server, ())]

    def _asking(self) -> int:
        return sum(member.asked is not None for member in self.members.values())

    def _announce_soon(self) -> None:
        if self._announcing is None:
            self._announce_in(SETTLE_S if self._asking() > 1 else ANNOUNCE_S)

    def _announce_in(self, pause_s: float) -> None:
        if self._announcing is not None:
            self._announcing.cancel()
        self._announcing = asyncio.get_running_loop().call_later(pause_s, self._announce)

    def _announce(self) -> None:
        self._announcing = None
        for exposure, _ in self._doorways.values():
            exposure.announce()

    async def apply(self, config: Config) -> None:
        """Go on with another config. Servers that are in both as they were, whatever is said of
        them, go on undisturbed; those that left finish the calls they have."""
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
            if not remade and name in wanted and member.takes(wanted[name])
        }
        self.members = {
            name: kept.get(name) or self._member(entry) for name, entry in wanted.items()
        }
        for name, member in before.items():
            if name not in kept:
                member.leave()
                self._leaving.add(member)
                self._background.start(self._let_go(member))
                heir = self.members[name].provider if name in self.members else None
                if isinstance(heir, Upstream) and isinstance(member.provider, Upstream):
                    heir.take_over(member.provider)
        self._changed()
        self._announce_soon()  # what is pinned or grouped may be other tools of the same servers
        await self.refresh([name for name in self.members if name not in kept])

    async def _let_go(self, member: Member) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + self.config.gateway.drain
        while member.provider.is_busy and loop.time() < until:  # noqa: ASYNC110  (it has many ends)
            await asyncio.sleep(0.1)
        # If the gateway ends meanwhile, that must not cut short what the server has to do yet.
        await asyncio.shield(member.provider.close())
        self._leaving.discard(member)

    async def close(self) -> None:
        """End all servers, at the same time."""
        if self._announcing is not None:
            self._announcing.cancel()
        await self._background.close()
        await self._finder.close()
        providers = [member.provider for member in (*self.members.values(), *self._leaving)]
        await asyncio.gather(*(provider.close() for provider in providers))

    # What the desk asks.

    async def search(
        self, query: str, limit: int, server: str | None, servers: frozenset[str]
    ) -> "Sequence[Hit]":
        """The best tools for a query."""
        self._index()
        everything = servers >= self.members.keys()
        scope = None if everything else servers
        return await self._finder.search(query, limit, server, scope)

    def indexing(self) -> int | None:
        """How many tools are indexed; None if all are."""
        return self._finder.indexed

    def near(self, name: str, limit: int) -> list[str]:
        """Exposed names of tools that one might have meant."""
        return self._finder.near(self.merged, name, limit)

    def status(self, servers: Iterable[str] | None = None) -> dict[str, Any]:
        """How the gateway and these servers fare."""
        names = self.members if servers is None else servers
        return {
            "gateway": {
                "version": self._version,
                "expose": "search" if self.searches else "all",
                "tools": self.merged.tool_count,
                "catalog": self.merged.version[:12],
                "search": self._finder.status(),
                "uptime_s": round(time.time() - self.started, 1),
            },
            "servers": [
                {**self.members[name].status(), "warnings": self._warnings(name)}
                for name in names
                if name in self.members
            ],
        }

    def pending(self, servers: Iterable[str]) -> list[str]:
        """Those of them that never said which tools they have."""
        known, members = self.merged.namespaced_offers, self.members
        there = [name for name in servers if name in members]
        return [name for name in there if name not in known or members[name].lacks_tools]

    def _index(self) -> None:
        tags = {name: " ".join(member.entry.tags) for name, member in self.members.items()}
        self._finder.use(self.merged, tags)
