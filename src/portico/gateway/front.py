"""What one doorway of the gateway shows its clients, and how they hear that it has changed."""

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from portico.catalog.snapshot import Catalog, Identity
from portico.catalog.union import Union
from portico.config.schema import Config
from portico.gateway import metatools
from portico.gateway.member import Member
from portico.model.offer import Offer
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
    union: Union
    members: dict[str, Member]


class Front:
    """The lists of a doorway: made once for what is behind it at a time."""

    def __init__(
        self,
        house: House,
        identity: Identity,
        *,
        searches: bool,
        told: Callable[[Union, Sequence[str]], str],
        servers: Callable[[], Sequence[str]] | None = None,
    ) -> None:
        """`searches` shows the meta-tools and what is pinned instead of every tool; `told` says in
        few words what is behind; `servers` names those of a group."""
        self._house = house
        self._identity = identity
        self._searches = searches
        self._told = told
        self._group = servers
        self._seen: tuple[Union, Config, Union] | None = None
        self._catalog: tuple[Union, Config, Catalog] | None = None
        self._announced: Offer | None = None
        self._numbers = 0
        self.hub = ChangeHub()

    def servers(self) -> Sequence[str]:
        """The servers it leads to, in order."""
        if self._group is None:
            return list(self._house.members)
        return [name for name in self._group() if name in self._house.members]

    @property
    def union(self) -> Union:
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
            known = self._catalog = (union, config, Catalog(identity, offer, self._numbers))
            if self._announced is None:
                self._announced = offer
        return known[2]

    def _offer(self, union: Union, config: Config, behind: str) -> Offer:
        if self._searches:
            limit = config.search.default_limit
            tools = metatools.meta_tools(behind, union.tool_count, limit)
            direct = dict.fromkeys((*config.gateway.pinned, *union.with_ui()))
            tools += union.tool_items(tuple(direct))
        else:
            tools = union.tool_items()
        return Offer(
            tools=tools,
            resources=union.resource_items("resources"),
            templates=union.resource_items("templates"),
            prompts=union.prompt_items(),
            completions=True,
            subscriptions=True,
            # What a server brings later could not be declared any more then.
            capabilities=frozenset(_KINDS),
        )

    def announce(self) -> None:
        """Tell clients which lists are really others than they were when last told."""
        before = self._announced
        if before is None:
            return  # nobody has ever asked
        now = self._announced = self.catalog().offer
        for kind in _KINDS:
            changed = getattr(now, kind) != getattr(before, kind)
            if changed or (kind == "resources" and now.templates != before.templates):
                self.hub.publish(Change(kind))

    def updated(self, server: str, change: Change) -> None:
        """A resource of a server has changed."""
        if server not in self.union.shares:
            return
        shown = self.union.ownership.shown(server, change.uri)
        params = change.params if shown == change.uri else encode({"uri": shown})
        self.hub.publish(Change("resources", shown, params))
