"""Search over 6,000 tools: by the library, and through the gateway."""

import time
from collections.abc import Callable, Iterator, Sequence
from statistics import median, quantiles
from typing import Any

from bench.gateway import SEARCH, SERVERS, TOOLS, Fleet, GatewayPipe, spread, with_echo, words
from bench.report import Budget, Section, Table, at_most
from bench.rounds import Samples
from bench.scale import Scale
from bench.search import FOLDER, read
from bench.workload import tool_request

_LIBRARY, _GATEWAY = "the library", "search_tools over stdio"
_FEW, _SENTENCE = "a few words", "a sentence"
_P50, _P99, _CPU = "p50 ms", "p99 ms", "CPU ms"
_SENTENCES = FOLDER / "seal" / "queries.jsonl"
_MOST_WORDS = 15


def measure(fleet: Fleet, scale: Scale, section: Section) -> None:
    """Every query is another one, so that nothing can be remembered."""
    samples, count = Samples(), max(100, scale.calls // 10)
    queries = {_FEW: needs(count * scale.rounds), _SENTENCE: sentences(count * scale.rounds)}
    with_library = _library()
    server = GatewayPipe(fleet.contender("search"), fleet)
    with server.process:
        server.open()
        server.use("refresh_tools")
        server.use(SEARCH, query="warm up")
        for kind, texts in queries.items():
            for start in range(0, len(texts), count):
                batch = texts[start : start + count]
                _time_library(with_library, batch, kind, samples)
                _time_gateway(server, batch, kind, samples)
    section.tables.append(_table(samples))
    section.budgets += _budgets(samples)
    section.notes += [f"noisy: {noise} (search)" for noise in samples.noisy()]


def needs(count: int) -> list[str]:
    """The names of tools in the corpus, as the words of a model's query."""
    tools = [tool for tools in spread(TOOLS, SERVERS).values() for tool in tools]
    names = {words(tool["name"]) for tool in tools}
    several = sorted(name for name in names if 2 <= len(name.split()) <= 5)
    return several[:: max(1, len(several) // count)][:count]


def sentences(count: int) -> list[str]:
    """Questions of people."""
    found = [row["query"] for row in read(_SENTENCES)] if _SENTENCES.is_file() else []
    return [text for text in found if len(text.split()) <= _MOST_WORDS][:count]


def _library() -> Callable[[str], Any]:
    from portico.search import ToolIndex

    index = ToolIndex.build(list(_tools()))
    return lambda query: index.search(query, 10)


def _tools() -> Iterator[dict[str, Any]]:
    for server, tools in with_echo(spread(TOOLS, SERVERS)).items():
        for tool in tools:
            yield {**tool, "server": server}


def _time_library(
    search: Callable[[str], Any], queries: Sequence[str], kind: str, samples: Samples
) -> None:
    times, began = [], time.process_time()
    for query in queries:
        started = time.perf_counter()
        search(query)
        times.append((time.perf_counter() - started) * 1e3)
    row = f"{_LIBRARY}, {kind}"
    samples.add(row, _CPU, (time.process_time() - began) / len(queries) * 1e3)
    samples.add(row, _P50, median(times))
    samples.add(row, _P99, quantiles(times, n=100, method="inclusive")[98])


def _time_gateway(server: GatewayPipe, queries: Sequence[str], kind: str, samples: Samples) -> None:
    left = iter(queries)
    timed = server.timed(lambda id: tool_request(id, SEARCH, {"query": next(left)}), len(queries))
    row = f"{_GATEWAY}, {kind}"
    samples.add(row, _CPU, timed.cpu_us / 1e3)
    samples.add(row, _P50, timed.p50_us / 1e3)
    samples.add(row, _P99, timed.p99_us / 1e3)


def _table(samples: Samples) -> Table:
    names = [f"{who}, {kind}" for kind in (_FEW, _SENTENCE) for who in (_LIBRARY, _GATEWAY)]
    columns = (_P50, _P99, _CPU)
    rows = [[n, *(samples.cell(n, column, "{:.2f}".format) for column in columns)] for n in names]
    return Table("Search over 6,000 tools, one at a time", ("", *columns), rows)


def _budgets(samples: Samples) -> list[Budget]:
    def own(who: str, column: str, promise: str) -> Budget:
        row = f"{who}, {_FEW}"
        figure, best = (f(row, column) for f in (samples.median, samples.best))
        return at_most(promise, figure, 2, " ms", best)

    return [
        own(_LIBRARY, _P50, "search by the library over 6,000 tools: p50"),
        own(_GATEWAY, _P50, "serve, search_tools over 6,000 tools: p50"),
        own(_GATEWAY, _CPU, "serve, search_tools over 6,000 tools: CPU"),
    ]
