"""What one doorway of the gateway shows its clients, and how they hear that it has changed."""

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from portico.catalog.catalog import Catalog, Identity
from portico.catalog.merge import Merged
from portico.config.schema import Config
from portico.gateway import metatools
from portico.gateway.member import Member
from portico.model.offer import KINDS, Listed, Offer
from portico.model.types import Change
from portico.protocol.codec import encode
from portico.state.hub import ChangeHub

_KINDS = ("tools", "resources", "prompts")

INSTRUCTIONS = (
    "Portico is one doorway to several MCP servers. Call search_tools to find a tool for what you "
    "need, then execute_tool with its name and arguments; describe_tool tells all about one."
)


class House(Protocol):
    """What is behind all doorways."""

    config: Config
    union: Merged
    members: dict[str, Member]


class Front:
    """The lists of a doorway: made once for what is behind it at a time."""

    def __init__(
        self,
        house: House,
        identity: Identity,
        *,
        searches: bool,
        told: Callable[[Merged, Sequence[str]], str],
        servers: Callable[[], Sequence[str]] | None = None,
    ) -> None:
        """`searches` shows the meta-tools and what is pinned instead of every tool; `told` says in
        few words what is behind; `servers` names those of a group."""
        self._house = house
        self._identity = identity
        self._searches = searches
        self._told = told
        self._group = servers
        self._seen: tuple[Merged, Config, Merged] | None = None
        self._catalog: tuple[Merged, Config, Catalog] | None = None
        self._announced: Catalog | None = None
        self._numbers = 0
        self.hub = ChangeHub()

    def servers(self) -> Sequence[str]:
        """The servers it leads to, in order."""
        if self._group is None:
            return list(self._house.members)
        return [name for name in self._group() if name in self._house.members]

    @property
    def union(self) -> Merged:
        """All that these offer now."""
        whole = self._house.union
        if self._group is None:
            return whole
        config = self._house.config
        if self._seen is None or self._seen[0] is not whole or self._seen[1] is not config:
            self._seen = (whole, config, whole.only(frozenset(self.servers())))
        return self._seen[2]

    def catalog(self) -> Catalog:
        """The snapshot of now."""
        union, config = self.union, self._house.config
        known = self._catalog
        if known is None or known[0] is not union or known[1] is not config:
            self._numbers += 1
            behind = self._told(union, self.servers())
            offer = self._offer(union, config, behind)
            identity = self._identity
            if self._searches:
                words = f"{INSTRUCTIONS} Servers: {behind}"
                identity = msgspec.structs.replace(identity, instructions=words)
            made = Catalog(offer, identity, number=self._numbers)
            known = self._catalog = (union, config, made)
            if self._announced is None:
                self._announced = made
        return known[2]

    def _offer(self, union: Merged, config: Config, behind: str) -> Offer:
        if self._searches:
            limit = config.search.default_limit
            own = metatools.meta_tools(behind, union.tool_count, limit)
            direct = union.listed("tools", [*config.gateway.pinned, *union.with_ui()])
            items, keys = (*own.values(), *direct.items), (*own, *direct.keys)
            tools = Listed(items=items, keys=keys)
        else:
            tools = union.listed("tools")
        rest = {kind: union.listed(kind) for kind in KINDS if kind != "tools"}
        return Offer(
            lists={"tools": tools, **rest},
            completions=True,
            subscriptions=True,
            # What a server brings later could not be declared any more then.
            declared=frozenset(_KINDS),
        )

    def announce(self) -> None:
        """Tell clients which lists are really others than they were when last told."""
        before = self._announced
        if before is None:
            return  # nobody has ever asked
        now = self._announced = self.catalog()
        for kind in now.changed(before):
            self.hub.publish(Change(kind))

    def updated(self, server: str, change: Change) -> None:
        """A resource of a server has changed."""
        if server not in self.union.shares:
            return
        shown = self.union.ownership.shown(server, change.uri)
        params = change.params if shown == change.uri else encode({"uri": shown})
        self.hub.publish(Change("resources", shown, params))
