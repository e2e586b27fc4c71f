"""Vectors of tools, computed in the background, once for each definition."""

import os
import re
import sys
import threading
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from portico.core.catalog.cache_folder import CacheFolder
from portico.core.model.errors import PorticoError
from portico.core.state.memory import give_back_memory
from portico.gateway.search.embedding_model import EmbeddingModel, load
from portico.gateway.search.index import Hit, ToolIndex
from portico.gateway.search.index_builder import Tools
from portico.gateway.search.ranking import MAX_QUERY, clauses, in_turn
from portico.gateway.search.vectorfile import VectorFile, key_of

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

DAMPING = 20.0
"""Added to the best lexical score before dividing, so that low scores have little weight."""
_BATCH = 8
_SAVE_EVERY = 1_024
"""Vectors between two saves; a killed process loses at most these."""
_MAX_CLAUSES = 12
"""Clauses of a query that are embedded, so that the longest takes a fraction of a second."""
_MAX_TEXT = 2_000
"""Characters of a definition, more than the model reads."""
_FULL_INPUT = 800
"""Characters that fill the model's input."""
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_a-zA-Z]+")

Views = tuple[str, ...]


def fuse(words: Mapping[int, float], cosines: Sequence[float]) -> dict[int, float]:
    """Add the lexical scores, scaled below 1, and the cosines; ranks would lose confidence."""
    scale = max(words.values(), default=0.0) + DAMPING
    score = words.get
    return {place: score(place, 0.0) / scale + cosine for place, cosine in enumerate(cosines)}


class QueryVector(NamedTuple):
    """The similarity of each tool to a query, by place, and its nearest clause, if any."""

    cosines: list[float]
    clause_of: dict[int, int]


class Space:
    """The vectors of all tools of one index."""

    def __init__(self, index: ToolIndex, matrix: "NDArray[float32]", model: EmbeddingModel) -> None:
        self.index = index
        self._matrix = matrix
        self._model = model

    def search(
        self,
        query: str,
        limit: int = 5,
        server: str | None = None,
        servers: Container[str] | None = None,
    ) -> list[Hit]:
        """Search as `ToolIndex.search`, by words and vectors; keep it off the event loop."""
        meaning = self.meaning(query)
        both = fuse(self.index.words(query), meaning.cosines)
        scores = in_turn(both, meaning.clause_of)
        return self.index.best(query, scores, limit, server, servers)

    def meaning(self, query: str) -> QueryVector:
        """Embed the query; this takes some milliseconds for each clause."""
        query = query[:MAX_QUERY]
        parts = clauses(query)[:_MAX_CLAUSES]
        whole = self._matrix @ self._model.embed([query])[0]
        if len(parts) < 2:
            return QueryVector(whole.tolist(), {})
        # Not in one batch with the whole: each would take as long as the longest.
        each = self._matrix @ self._model.embed(parts).T
        clause_of = dict(enumerate(each.argmax(axis=1).tolist()))
        return QueryVector(((whole + each.max(axis=1)) / 2).tolist(), clause_of)


class Vectors:
    """Computes the space of an index in a thread. `space` is empty until then."""

    def __init__(
        self,
        *,
        folder: str | None = None,
        report: Callable[[str], None],
        model: Callable[[], EmbeddingModel] = load,
        disk_cache: CacheFolder | None = None,
    ) -> None:
        """`folder` keeps vectors, within the limit of `disk_cache`."""
        self._disk_cache = disk_cache
        self._folder = folder
        self._report = report
        self._load = model
        self._model: EmbeddingModel | None = None
        self._lock = threading.Lock()
        self._wanted: tuple[ToolIndex, Tools] | None = None
        self._thread: threading.Thread | None = None
        self._closed = False
        self.space: Space | None = None
        self.done, self.of = 0, 0
        self.failed = ""

    def use(self, index: ToolIndex, tools: Tools) -> None:
        """Compute the space of this index; a computation in progress is cancelled."""
        with self._lock:
            self.space = None
            self.done, self.of = 0, len(index)
            self._wanted = (index, tools)
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._work, name="vectors", daemon=True)
                self._thread.start()

    def wait(self) -> None:
        """Wait until the computation ends or is cancelled."""
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()

    def close(self) -> None:
        """Stop computing; saved vectors remain."""
        with self._lock:
            self._closed = True
            self._wanted = None
            thread = self._thread
        if thread is not None:
            thread.join(5.0)

    def _work(self) -> None:
        _lower_priority()
        while True:
            with self._lock:
                wanted, self._wanted = self._wanted, None
                if wanted is None:
                    self._thread = None
                    return
            try:
                self._make(*wanted)
                give_back_memory()
            except PorticoError as error:
                self._give_up(str(error))
            except Exception as error:  # noqa: BLE001 - search continues without vectors
                self._give_up(f"{type(error).__name__}: {error}")

    def _give_up(self, why: str) -> None:
        known, self.failed = self.failed, why
        if why != known:
            self._report(f"search continues without vectors: {why}")

    def _make(self, index: ToolIndex, tools: Tools) -> None:
        import numpy as np

        if self._model is None:
            self._model = self._load()
        if not len(index):
            return
        views = views_of(index, tools())
        keys = [key_of("\0".join(texts)) for texts in views]
        file = None
        if self._folder:
            file = VectorFile(self._folder, self._model.name, self._report, self._disk_cache)
        known = file.load() if file else {}
        ours = {key: known[key] for key in keys if key in known}
        missing = {key: texts for key, texts in zip(keys, views, strict=True) if key not in ours}
        del known, views
        self.done = len(index) - len(missing)
        if not self._embed(missing, ours, keys, file):
            return
        rows = b"".join([ours[key] for key in keys])
        del ours, missing
        matrix = np.frombuffer(rows, "<f2").astype(np.float32).reshape(len(keys), -1)
        with self._lock:
            if self._wanted is None and not self._closed:
                self.space = Space(index, matrix, self._model)
                self.failed = ""

    def _embed(
        self,
        missing: dict[bytes, Views],
        ours: dict[bytes, bytes],
        keys: list[bytes],
        file: VectorFile | None,
    ) -> bool:
        """Compute the missing vectors, similar lengths together; False if cancelled."""
        assert self._model is not None
        order = sorted(missing, key=lambda key: len(missing[key][-1]))
        fresh: dict[bytes, bytes] = {}
        whole = True
        for at in range(0, len(order), _BATCH):
            if self._wanted is not None or self._closed:
                whole = False
                break
            batch = order[at : at + _BATCH]
            vectors = _mean_vectors(self._model, [missing[key] for key in batch])
            fresh.update(zip(batch, vectors, strict=True))
            self.done += len(batch)
            if file and len(fresh) >= _SAVE_EVERY:
                file.add(fresh, keys)
                ours.update(fresh)
                fresh = {}
        ours.update(fresh)
        if file and fresh:
            file.add(fresh, keys)
        return whole


def _mean_vectors(model: EmbeddingModel, views: Sequence[Views]) -> list[bytes]:
    """Return one vector per tool, as stored: the mean of its views, with length one."""
    import numpy as np

    rows = iter(model.embed([text for texts in views for text in texts]))
    sums = [sum((next(rows) for _ in texts[1:]), next(rows)) for texts in views]
    return [(each / np.linalg.norm(each)).astype("<f2").tobytes() for each in sums]


def views_of(index: ToolIndex, tools: Iterable[Mapping[str, Any]]) -> list[Views]:
    """Return the texts to embed of each tool, by its place in the index."""
    places = {key: place for place, key in enumerate(index.places())}
    # The name of the only server does not distinguish tools.
    several = len({server for server, _ in places}) > 1
    views: list[Views] = [("",)] * len(places)
    for tool in tools:
        found = tool.get("server"), tool.get("name"), tool.get("description")
        server, name, description = (one if isinstance(one, str) else "" for one in found)
        place = places.pop((server, name), None)  # of twins, the first
        if place is not None:
            title = f"{_spaced(server)}: {_spaced(name)}" if several else _spaced(name)
            views[place] = _views(f"{title}: {description}", tool.get("inputSchema"))
    return views


def _views(text: str, schema: object) -> Views:
    """Return the description, and the same with parameters unless the model would not read them."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping) or not properties or len(text) > _FULL_INPUT:
        return (text[:_MAX_TEXT],)
    taken = ", ".join(_spaced(str(name)) for name in properties)
    return text, f"{text} Parameters: {taken}"[:_MAX_TEXT]


def _spaced(name: str) -> str:
    return " ".join(_WORD.findall(name)).lower()


def _lower_priority() -> None:
    """Lower the priority of this thread, which only Linux supports."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
