"""The search for tools of all servers, by description or by similar name."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING, Any

from portico.core.catalog.exposed_names import SEPARATOR
from portico.core.catalog.merge import Merged
from portico.core.catalog.namespaced import NamespacedOffer

if TYPE_CHECKING:
    from portico.gateway.search.index import Hit
    from portico.gateway.search.searcher import Searcher
    from portico.gateway.search.similar_names import SimilarNames


FIRST_BATCH = 500
"""The tools indexed first, which takes a tenth of a second."""
_MAX_NAMES = 20_000
"""The limit on names compared with a misspelt one: reading them takes 50 ms."""


class ToolSearch:
    """The searcher of the merged offers, created at the first search."""

    def __init__(self, searcher: "Callable[[], Searcher] | None") -> None:
        """`searcher` is called when first needed; None if nothing is ever searched."""
        self._make = searcher
        self.is_needed = False
        """True after the first search."""
        self._names: tuple[Merged, SimilarNames] | None = None

    def use(self, merged: Merged, tags: Mapping[str, str]) -> None:
        """Search these tools from now on, with each server's tags as additional text."""
        version = merged.version
        if any(tags.values()):
            version = blake2b(f"{version}{tags}".encode(), digest_size=16).hexdigest()
        self.is_needed = True
        first = (lambda: _first_batch(merged, tags)) if merged.tool_count > FIRST_BATCH else None
        self._searcher.use(
            version, lambda: searched_tools(merged.namespaced_offers.values(), tags), first
        )

    @property
    def indexed(self) -> int | None:
        """The number of indexed tools; None if all are indexed."""
        searcher = self._searcher
        return searcher.status()["tools"] if searcher.is_behind else None

    async def search(
        self, query: str, limit: int, server: str | None, servers: frozenset[str] | None
    ) -> "Sequence[Hit]":
        """Return the best tools for a query, of one server or of some."""
        return await self._searcher.search(query, limit, server=server, servers=servers)

    def similar_names(self, merged: Merged, name: str, limit: int) -> list[str]:
        """Return the exposed names of tools that are similar to a name."""
        server, _, plain = name.rpartition(SEPARATOR)
        near = self._named(merged).similar(plain, limit)
        namespaced_offers = merged.namespaced_offers.values()
        found = [
            (namespaced, tool)
            for tool in near
            for namespaced in namespaced_offers
            if tool in namespaced.tools
        ]
        found.sort(key=lambda place: place[0].server != server)  # the named server's first
        return [namespaced.tools[tool] for namespaced, tool in found]

    def status(self) -> dict[str, Any]:
        """Return the state of the index; empty before the first search."""
        return self._searcher.status() if self.is_needed else {}

    async def close(self) -> None:
        """Stop indexing."""
        if "_searcher" in self.__dict__:
            await self._searcher.close()

    @cached_property
    def _searcher(self) -> "Searcher":
        assert self._make is not None
        return self._make()

    def _named(self, merged: Merged) -> "SimilarNames":
        known = self._names
        if known is None or known[0] is not merged:
            from portico.gateway.search.similar_names import SimilarNames

            names = (tool for namespaced in _smallest(merged) for tool in namespaced.tools)
            known = self._names = (merged, SimilarNames(islice(names, _MAX_NAMES)))
        return known[1]


def _first_batch(merged: Merged, tags: Mapping[str, str]) -> Iterable[dict[str, Any]]:
    """Return the tools of the smallest servers: a large server must not delay the others."""
    return islice(searched_tools(_smallest(merged), tags), FIRST_BATCH)


def _smallest(merged: Merged) -> list[NamespacedOffer]:
    """Return the offers, those with the fewest tools first."""
    return sorted(
        merged.namespaced_offers.values(),
        key=lambda namespaced: len(namespaced.listed("tools").keys),
    )


def searched_tools(
    namespaced_offers: Iterable[NamespacedOffer], tags: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    for namespaced in namespaced_offers:
        tagged = tags.get(namespaced.server, "")
        for tool in namespaced.tools:
            definition = {**namespaced.definition(tool), "name": tool, "server": namespaced.server}
            if tagged:
                definition["description"] = f"{definition.get('description', '')} {tagged}"
            yield definition
