"""The search of a gateway: the index of the current catalog, vectors and a reranker."""

import asyncio
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any

from portico.core.catalog.cache_folder import CacheFolder
from portico.core.model.errors import PorticoError
from portico.core.state.report import report as to_operator
from portico.gateway.search.index import Hit, ToolIndex
from portico.gateway.search.index_builder import Tools, build
from portico.gateway.search.index_store import IndexStore
from portico.gateway.search.ranking import MAX_QUERY

if TYPE_CHECKING:
    from portico.core.config.schema import Search
    from portico.gateway.search.rerank import Candidate, Reranker
    from portico.gateway.search.vectors import Space, Vectors

CANDIDATES = 25
"""How many of the local hits are sent to a reranker."""
CACHED = 512
SHORT = 300
"""Characters of a query that takes a few milliseconds; a longer one runs in a thread."""
WHOLE_S = 2.0
"""Searches wait this long for the first whole index, then use a part of it."""
FIRST_S = 20.0
"""Searches wait this long for any index at all: building the first part takes a fraction of it."""

_Query = tuple[str, int, str | None, frozenset[str] | None, bool]


@dataclass(frozen=True)
class _Catalog:
    """The index of one version, and its cached results."""

    index: ToolIndex
    shown: "dict[tuple[str, str], Candidate]"
    """The form of each tool for a reranker; empty without one."""
    whole: bool = True
    """False if some tools of this version are not indexed yet."""
    cache: "OrderedDict[_Query, list[Hit]]" = field(default_factory=OrderedDict)
    """The results, least recently used first."""


@dataclass(frozen=True)
class _Wanted:
    """A version to index."""

    version: str
    tools: Tools
    first: Tools | None


class Searcher:
    """Searches one catalog at a time; only `use` and `close` change anything."""

    def __init__(
        self,
        *,
        vectors: "Vectors | None" = None,
        reranker: "Reranker | None" = None,
        store: str | os.PathLike[str] | None = None,
        report: Callable[[str], None] = to_operator,
        max_wait_s: float = WHOLE_S,
        disk_cache: CacheFolder | None = None,
    ) -> None:
        """`max_wait_s` is how long searches wait for the first whole index."""
        self._vectors = vectors
        self._reranker = reranker
        self._report = _without_errors(report)
        self._store = (
            IndexStore(os.fspath(store), self._report, disk_cache) if store is not None else None
        )
        self._max_wait_s = max_wait_s
        self._lock = threading.Lock()
        self._version: str | None = None
        self._indexed: str | None = None
        """The last version that was indexed as a whole."""
        self._wanted: _Wanted | None = None
        self._worker: threading.Thread | None = None
        self._catalog: _Catalog | None = None
        self._failure = ""
        """Why there is no catalog, if indexing failed."""
        # Neither keeps a catalog, which may be replaced later.
        self._first: Future[None] = Future()
        self._whole: Future[None] = Future()
        self._until = 0.0
        self._hits = self._misses = 0
        self._durations: deque[float] = deque(maxlen=256)

    @classmethod
    def configured(
        cls,
        search: "Search",
        folder: str,
        report: Callable[[str], None] = to_operator,
        disk_cache: CacheFolder | None = None,
    ) -> "Searcher":
        """Create a searcher from the config, with its files in this folder."""
        vectors = reranker = None
        report = _without_errors(report)
        if search.vectors:
            from functools import partial

            from portico.gateway.search.embedding_model import load
            from portico.gateway.search.vectors import Vectors

            model = partial(load, search.model)
            vectors = Vectors(folder=folder, report=report, model=model, disk_cache=disk_cache)
        if (rerank := search.rerank) is not None:
            from portico.gateway.search.rerank import Reranker

            reranker = Reranker(
                rerank.provider,
                rerank.model,
                url=rerank.url,
                key_env=rerank.key_env,
                timeout_s=rerank.timeout_ms / 1e3,
                report=report,
            )
        return cls(
            vectors=vectors, reranker=reranker, store=folder, report=report, disk_cache=disk_cache
        )

    def use(self, version: str, tools: Tools, first: Tools | None = None) -> None:
        """Search these tools as soon as they are indexed; `tools` is called in a thread.

        `first` are a few of them, which are searched until a first index of all is built.
        """
        with self._lock:
            if version == self._version:
                return
            self._version = version
            self._wanted = _Wanted(version, tools, first)
            if self._catalog is None and (self._failure or not self._until):
                self._failure = ""
                self._first, self._whole = Future(), Future()
                self._until = monotonic() + self._max_wait_s
            if self._worker is None:
                self._worker = threading.Thread(target=self._work, name="search-index", daemon=True)
                self._worker.start()

    @property
    def is_behind(self) -> bool:
        """True while tools are being indexed that no search finds yet."""
        return self._indexed != self._version

    async def search(
        self,
        query: str,
        limit: int,
        server: str | None = None,
        servers: frozenset[str] | None = None,
    ) -> list[Hit]:
        """The best tools of one server or of some; the first search waits for an index."""
        started = perf_counter()
        query = query[:MAX_QUERY]  # the rest is not read, and must not fill the cache
        catalog = self._catalog
        if catalog is None or not catalog.whole:
            catalog = await self._wait_for_catalog()
        space = self._vectors.space if self._vectors else None
        space = space if space is not None and space.index is catalog.index else None
        words = " ".join(sorted(query.casefold().split())) if self._reranker else query
        key: _Query = (words, limit, server, servers, space is not None)
        cache = catalog.cache
        found = cache.get(key)
        if found is not None:
            cache.move_to_end(key)
            self._hits += 1
        else:
            self._misses += 1
            found, final = await self._find(catalog, space, query, key)
            if final:
                cache[key] = found
                if len(cache) > CACHED:
                    cache.popitem(last=False)
        self._durations.append(perf_counter() - started)
        return [*found]

    def status(self) -> dict[str, Any]:
        """Return its state, for people."""
        vectors, durations = self._vectors, sorted(self._durations)
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
            "p50_ms": round(durations[len(durations) // 2] * 1e3, 3) if durations else None,
        }

    async def close(self) -> None:
        """Stop indexing, and close the reranker."""
        with self._lock:
            self._wanted = None
        if self._vectors is not None:
            await asyncio.to_thread(self._vectors.close)
        if self._reranker is not None:
            await self._reranker.close()

    def _work(self) -> None:
        """Index one version after another in a thread; of those that wait, only the last."""
        while True:
            with self._lock:
                wanted, self._wanted = self._wanted, None
                if wanted is None:
                    self._worker = None
                    return
            why = "the index was not built"
            try:
                catalog = self._build(wanted)
                self._show(wanted, catalog)
                why = ""
            except Exception as error:  # noqa: BLE001 - tools come from elsewhere; the old ones stay
                why = f"{type(error).__name__}: {error}"
            finally:  # searches wait for this, even after an error
                if why:
                    self._failed(wanted.version, f"the tools cannot be indexed: {why}")

    def _show(self, wanted: _Wanted, catalog: _Catalog) -> None:
        with self._lock:
            if self._vectors is not None and catalog.whole and wanted.version == self._version:
                self._vectors.use(catalog.index, wanted.tools)
            self._catalog = catalog
            _settle(self._first)
            if catalog.whole:
                self._indexed = wanted.version
                _settle(self._whole)

    def _failed(self, version: str, why: str) -> None:
        with self._lock:
            if version == self._version:
                self._version = self._indexed  # so that the same version may be tried again
                self._failure = why
                _settle(self._first)
                _settle(self._whole)
        self._report(why)

    def _build(self, wanted: _Wanted) -> _Catalog:
        index = self._store.load(wanted.version) if self._store else None
        if index is None:
            if wanted.first is not None and self._catalog is None:
                part = ToolIndex.build(wanted.first())
                self._show(wanted, _Catalog(part, self._candidates(wanted.first), whole=False))
            index = build(wanted.tools)
            if self._store:
                self._store.save(wanted.version, index)
        return _Catalog(index, self._candidates(wanted.tools))

    def _candidates(self, tools: Tools) -> "dict[tuple[str, str], Candidate]":
        if self._reranker is None:
            return {}
        from portico.gateway.search.rerank import candidate

        shown: dict[tuple[str, str], Candidate] = {}
        for tool in tools():
            server, name = tool.get("server"), tool.get("name")
            if isinstance(server, str) and isinstance(name, str):
                shown.setdefault((server, name), candidate(name, tool))
        self._reranker.prepare()
        return shown

    async def _wait_for_catalog(self) -> _Catalog:
        with self._lock:
            if self._version is None and not self._first.done():
                raise PorticoError(
                    "search is not ready: no catalog is loaded yet; try again in a moment"
                )
            first, whole, until = self._first, self._whole, self._until
        await _wait(whole, until - monotonic())
        if self._catalog is None:
            await _wait(first, FIRST_S)
        if self._catalog is None:
            still = "the tools are still being indexed; search again in a moment"
            raise PorticoError(self._failure or still)
        return self._catalog

    async def _find(
        self, catalog: _Catalog, space: "Space | None", query: str, key: _Query
    ) -> tuple[list[Hit], bool]:
        """Return the hits, and whether they are final."""
        _, limit, server, servers, _ = key
        wanted = query, max(limit, CANDIDATES) if self._reranker else limit, server, servers
        if space is not None:
            hits = await asyncio.to_thread(self._by_both, space, *wanted)
        elif len(query) > SHORT:
            hits = await asyncio.to_thread(catalog.index.search, *wanted)
        else:
            hits = catalog.index.search(*wanted)
        if self._reranker is None or len(hits) < 2:
            return hits[:limit], True
        shown = _distinct([catalog.shown.get((hit.server, hit.name)) for hit in hits], hits)
        order = await self._reranker.rerank(query, shown[:CANDIDATES], limit)
        if order is None:
            return hits[: max(limit, 0)], False
        return [*(hits[at] for at in order), *hits[CANDIDATES:]][: max(limit, 0)], True

    def _by_both(self, space: "Space", *wanted: Any) -> list[Hit]:
        try:
            return space.search(*wanted)
        except Exception as error:  # noqa: BLE001 - lexical search always works
            self._report(f"vectors failed for a query: {type(error).__name__}: {error}")
            return space.index.search(*wanted)


def _settle(future: "Future[None]") -> None:
    if not future.done():
        future.set_result(None)


async def _wait(future: "Future[None]", at_most_s: float) -> None:
    """Wait for a future without cancelling it for other searches."""
    if not future.done() and at_most_s > 0:
        await asyncio.wait({asyncio.wrap_future(future)}, timeout=at_most_s)


def _without_errors(report: Callable[[str], None]) -> Callable[[str], None]:
    """Return the same report for threads, without its errors."""

    def quiet(text: str) -> None:
        with suppress(Exception):
            report(text)

    return quiet


def _distinct(shown: "list[Candidate | None]", hits: list[Hit]) -> "list[Candidate]":
    """Return the candidates, with the server before names that occur twice."""
    from portico.gateway.search.rerank import Candidate

    names = [hit.name for hit in hits]
    distinct: list[Candidate] = []
    for hit, one in zip(hits, shown, strict=True):
        known = one or Candidate(hit.name)
        twice = names.count(hit.name) > 1
        distinct.append(known._replace(name=f"{hit.server}/{known.name}") if twice else known)
    return distinct
