"""The search of a gateway: the index of the current catalog, and all that makes it better."""

import asyncio
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

from portico.model.errors import PorticoError
from portico.search.building import build
from portico.search.index import Hit, ToolIndex
from portico.search.ranking import LONGEST_QUERY
from portico.search.shelf import Shelf
from portico.state.report import report as to_operator

if TYPE_CHECKING:
    from portico.config.schema import Search
    from portico.search.rerank import Candidate, Reranker
    from portico.search.vectors import Space, Vectors

CANDIDATES = 25
"""How many of the local hits a reranker is shown."""
CACHED = 512
SHORT = 300
"""Characters of a query that takes a few milliseconds at most; a longer one gets a thread."""

Tools = Callable[[], Iterable[Mapping[str, Any]]]
_Asked = tuple[str, int, str | None, frozenset[str] | None, bool]


@dataclass(frozen=True)
class _Catalog:
    """All that is known of one version."""

    index: ToolIndex
    shown: "dict[tuple[str, str], Candidate]"
    """What a reranker is shown of each tool; empty without one."""


class Searcher:
    """Searches one catalog at a time; only `use` and `close` change anything."""

    def __init__(
        self,
        *,
        vectors: "Vectors | None" = None,
        reranker: "Reranker | None" = None,
        store: str | os.PathLike[str] | None = None,
        report: Callable[[str], None] = to_operator,
    ) -> None:
        self._vectors = vectors
        self._reranker = reranker
        self._shelf = Shelf(os.fspath(store), report) if store is not None else None
        self._report = report
        self._lock = threading.Lock()
        self._version: str | None = None
        self._wanted: tuple[str, Tools] | None = None
        self._worker: threading.Thread | None = None
        self._catalog: _Catalog | None = None
        self._first: Future[None] = Future()
        """Done when there is a catalog; it holds none, since that one is replaced some day."""
        self._cache: OrderedDict[_Asked, list[Hit]] = OrderedDict()
        self._hits = self._misses = 0
        self._took: deque[float] = deque(maxlen=256)

    @classmethod
    def configured(
        cls, search: "Search", folder: str, report: Callable[[str], None] = to_operator
    ) -> "Searcher":
        """As the config says, with its files in this folder."""
        vectors = reranker = None
        if search.vectors:
            from functools import partial

            from portico.search.model import load
            from portico.search.vectors import Vectors

            vectors = Vectors(folder=folder, report=report, model=partial(load, search.model))
        if (asked := search.rerank) is not None:
            from portico.search.rerank import Reranker

            reranker = Reranker(
                asked.provider,
                asked.model,
                url=asked.url,
                key_env=asked.key_env,
                timeout_s=asked.timeout_ms / 1e3,
                report=report,
            )
        return cls(vectors=vectors, reranker=reranker, store=folder, report=report)

    def use(self, version: str, tools: Tools) -> None:
        """Search these tools as soon as they are indexed; `tools` is called in a thread."""
        with self._lock:
            if version == self._version:
                return
            self._version = version
            self._wanted = (version, tools)
            if self._first.done() and self._catalog is None:
                self._first = Future()  # the last one failed
            if self._worker is None:
                self._worker = threading.Thread(target=self._work, name="search-index", daemon=True)
                self._worker.start()

    async def search(
        self,
        query: str,
        limit: int,
        server: str | None = None,
        servers: frozenset[str] | None = None,
    ) -> list[Hit]:
        """The best tools, of one server or of some; the first search waits for the index."""
        started = perf_counter()
        query = query[:LONGEST_QUERY]  # more is not read, and must not fill the cache
        catalog = self._catalog or await self._opened()
        space = self._space(catalog)
        asked: _Asked = (query, limit, server, servers, space is not None)
        found = self._cache.get(asked)
        if found is not None:
            self._cache.move_to_end(asked)
            self._hits += 1
        else:
            self._misses += 1
            found, final = await self._find(catalog, space, asked)
            if final and catalog is self._catalog:
                self._cache[asked] = found
                if len(self._cache) > CACHED:
                    self._cache.popitem(last=False)
        self._took.append(perf_counter() - started)
        return [*found]

    def status(self) -> dict[str, Any]:
        """How it fares, for people."""
        vectors, took = self._vectors, sorted(self._took)
        made: dict[str, Any] | None = None
        if vectors is not None:
            ready = vectors.space is not None
            made = {"ready": ready, "made": vectors.done, "of": vectors.of}
            made |= {"failed": vectors.failed} if vectors.failed else {}
        return {
            "tools": len(self._catalog.index) if self._catalog else 0,
            "vectors": made,
            "rerank": self._reranker.state if self._reranker else "off",
            "searches": self._hits + self._misses,
            "cache": {"hits": self._hits, "misses": self._misses},
            "p50_ms": round(took[len(took) // 2] * 1e3, 3) if took else None,
        }

    async def close(self) -> None:
        """Stop what is under way."""
        with self._lock:
            self._wanted = None
        if self._vectors is not None:
            await asyncio.to_thread(self._vectors.close)
        if self._reranker is not None:
            await self._reranker.close()

    def _work(self) -> None:
        """In a thread: one version after another; of those that wait, only the last."""
        while True:
            with self._lock:
                wanted, self._wanted = self._wanted, None
                if wanted is None:
                    self._worker = None
                    return
            version, tools = wanted
            try:
                self._show(version, tools, self._made(version, tools))
            except Exception as error:  # noqa: BLE001 - tools come from elsewhere; the old ones stay
                self._failed(version, f"{type(error).__name__}: {error}")

    def _show(self, version: str, tools: Tools, catalog: _Catalog) -> None:
        with self._lock:
            if self._vectors is not None and version == self._version:
                self._vectors.use(catalog.index, tools)
            self._catalog = catalog
            self._cache = OrderedDict()
            if not self._first.done():
                self._first.set_result(None)

    def _failed(self, version: str, why: str) -> None:
        why = f"the tools cannot be indexed: {why}"
        self._report(why)
        with self._lock:
            if version == self._version:
                self._version = None  # so that the same version may be tried again
                if not self._first.done():
                    self._first.set_exception(PorticoError(why))

    def _made(self, version: str, tools: Tools) -> _Catalog:
        index = self._shelf.load(version) if self._shelf else None
        if index is None:
            index = build(tools)
            if self._shelf:
                self._shelf.save(version, index)
        shown: dict[tuple[str, str], Candidate] = {}
        if self._reranker is not None:
            shown = _shown(tools())
            self._reranker.prepare()
        return _Catalog(index, shown)

    async def _opened(self) -> _Catalog:
        with self._lock:
            if self._version is None and not self._first.done():
                raise PorticoError("there is nothing to search yet: no catalog was given")
            first = self._first
        # Shielded: who gives up waiting does not take the index from the others.
        await asyncio.shield(asyncio.wrap_future(first))
        assert self._catalog is not None
        return self._catalog

    def _space(self, catalog: _Catalog) -> "Space | None":
        space = self._vectors.space if self._vectors else None
        return space if space is not None and space.index is catalog.index else None

    async def _find(
        self, catalog: _Catalog, space: "Space | None", asked: _Asked
    ) -> tuple[list[Hit], bool]:
        """The hits, and whether they are as good as they get."""
        query, limit, server, servers, _ = asked
        wide = max(limit, CANDIDATES) if self._reranker else limit
        if space is not None:
            hits = await asyncio.to_thread(self._by_both, space, query, wide, server, servers)
        elif len(query) > SHORT:
            hits = await asyncio.to_thread(catalog.index.search, query, wide, server, servers)
        else:
            hits = catalog.index.search(query, wide, server, servers)
        if self._reranker is None or len(hits) < 2:
            return hits[:limit], True
        shown = _unlike([catalog.shown.get((hit.server, hit.name)) for hit in hits], hits)
        order = await self._reranker.rerank(query, shown[:CANDIDATES], limit)
        if order is None:
            return hits[: max(limit, 0)], False
        return [*(hits[at] for at in order), *hits[CANDIDATES:]][: max(limit, 0)], True

    def _by_both(
        self,
        space: "Space",
        query: str,
        limit: int,
        server: str | None,
        servers: frozenset[str] | None,
    ) -> list[Hit]:
        try:
            return space.search(query, limit, server, servers)
        except Exception as error:  # noqa: BLE001 - words are always there
            self._report(f"vectors failed for a query: {type(error).__name__}: {error}")
            return space.index.search(query, limit, server, servers)


def _shown(tools: Iterable[Mapping[str, Any]]) -> "dict[tuple[str, str], Candidate]":
    from portico.search.rerank import candidate

    shown: dict[tuple[str, str], Candidate] = {}
    for tool in tools:
        server, name = tool.get("server"), tool.get("name")
        if isinstance(server, str) and isinstance(name, str):
            shown.setdefault((server, name), candidate(name, tool))
    return shown


def _unlike(shown: "list[Candidate | None]", hits: list[Hit]) -> "list[Candidate]":
    """What is shown, with the server before names that stand there twice."""
    from portico.search.rerank import Candidate

    names = [hit.name for hit in hits]
    told: list[Candidate] = []
    for hit, one in zip(hits, shown, strict=True):
        known = one or Candidate(hit.name)
        twice = names.count(hit.name) > 1
        told.append(known._replace(name=f"{hit.server}/{known.name}") if twice else known)
    return told
