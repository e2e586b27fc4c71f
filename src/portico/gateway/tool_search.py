"""Finds tools among those of all servers: by what they do, or by a name that is nearly theirs."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

from portico.catalog.exposed_names import SEPARATOR
from portico.catalog.merge import Merged
from portico.catalog.namespaced import NamespacedOffer
from portico.model.digest import blake2b

if TYPE_CHECKING:
    from portico.search.index import Hit
    from portico.search.near_names import NearNames
    from portico.search.searcher import Searcher


FIRST = 500
"""Tools that are indexed before all others: that takes a tenth of a second."""
_MOST_NAMES = 20_000
"""Names that are compared with a misspelt one: reading them takes a twentieth of a second."""


class ToolSearch:
    """Has what is offered searched, from the first time that somebody wants to."""

    def __init__(self, searcher: "Callable[[], Searcher]") -> None:
        """`searcher` is made when it is first needed."""
        self._make = searcher
        self.is_needed = False
        """True once anything was searched for."""
        self._names: tuple[Merged, NearNames] | None = None

    def use(self, union: Merged, tags: Mapping[str, str]) -> None:
        """Search these tools from now on; by server, the tags say more of them."""
        version = union.version
        if any(tags.values()):
            version = blake2b(f"{version}{tags}".encode(), digest_size=16).hexdigest()
        self.is_needed = True
        first = (lambda: _first(union, tags)) if union.tool_count > FIRST else None
        self._searcher.use(version, lambda: searched_tools(union.shares.values(), tags), first)

    @property
    def indexed(self) -> int | None:
        """How many tools are indexed while that is not all of them, else None."""
        searcher = self._searcher
        return searcher.status()["tools"] if searcher.is_behind else None

    async def search(
        self, query: str, limit: int, server: str | None, servers: frozenset[str] | None
    ) -> "Sequence[Hit]":
        """The best tools for a query; of one server, or of some."""
        return await self._searcher.search(query, limit, server=server, servers=servers)

    def near(self, union: Merged, name: str, limit: int) -> list[str]:
        """Exposed names of tools that one might have meant."""
        server, _, plain = name.rpartition(SEPARATOR)
        near = self._named(union).near(plain, limit)
        shares = union.shares.values()
        found = [(share, tool) for tool in near for share in shares if tool in share.tools]
        found.sort(key=lambda place: place[0].server != server)  # those of the named one first
        return [share.tools[tool] for share, tool in found]

    def status(self) -> dict[str, Any]:
        """How it fares; empty as long as nothing was searched for."""
        return self._searcher.status() if self.is_needed else {}

    async def close(self) -> None:
        """Stop what is under way."""
        if "_searcher" in self.__dict__:
            await self._searcher.close()

    @cached_property
    def _searcher(self) -> "Searcher":
        return self._make()

    def _named(self, union: Merged) -> "NearNames":
        known = self._names
        if known is None or known[0] is not union:
            from portico.search.near_names import NearNames

            names = (tool for share in _smallest(union) for tool in share.tools)
            known = self._names = (union, NearNames(islice(names, _MOST_NAMES)))
        return known[1]


def _first(union: Merged, tags: Mapping[str, str]) -> Iterable[dict[str, Any]]:
    """The tools of the smallest servers: a large one must not hold up the others."""
    return islice(searched_tools(_smallest(union), tags), FIRST)


def _smallest(union: Merged) -> list[NamespacedOffer]:
    """The shares, those with the fewest tools first."""
    return sorted(union.shares.values(), key=lambda share: len(share.listed("tools").keys))


def searched_tools(
    shares: Iterable[NamespacedOffer], tags: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    for share in shares:
        tagged = tags.get(share.server, "")
        for tool in share.tools:
            definition = {**share.definition(tool), "name": tool, "server": share.server}
            if tagged:
                definition["description"] = f"{definition.get('description', '')} {tagged}"
            yield definition
