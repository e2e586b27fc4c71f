"""`make bench-search`: how often the right tool is among the first, beside plainer ways."""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

from bench import machine, report
from bench.report import Table, at_least
from bench.search_peers import PlainBM25, Substrings, fastmcp
from bench.workload import CATALOG, ROOT
from portico.search import ToolIndex

FOLDER = CATALOG.parents[1]
SETS = ("livemcp", "livemcp_toucan", "metatool", "seal", "stabletoolbench")
PLAIN, OURS, VECTORS = "plain BM25", "Portico", "Portico + vectors"
_DEEP = 10
_SHORT = ("weather forecast", "send an email", "create github issue", "read file", "stock price")

Tool = Mapping[str, Any]
Search = Callable[[str], Sequence[str]]


@dataclass(frozen=True)
class Scores:
    """The scores of one search method on one set."""

    first: float
    five: float
    ten: float
    reciprocal: float
    seconds: float

    def cells(self) -> list[str]:
        """For a table: recall, reciprocal rank, milliseconds."""
        found = (self.first, self.five, self.ten, self.reciprocal)
        return [*(f"{figure:.3f}" for figure in found), f"{self.seconds * 1e3:.2f}"]


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a JSON Lines file; a line may hold any character but a line feed."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def judge(found: Sequence[Sequence[str]], queries: Sequence[Tool], seconds: float) -> Scores:
    """Recall at one, five and ten, and the mean reciprocal rank."""
    wanted = [frozenset(query["relevant"]) for query in queries]
    pairs = list(zip(found, wanted, strict=True))

    def recall(depth: int) -> float:
        return mean(len(right.intersection(ids[:depth])) / len(right) for ids, right in pairs)

    ranks = [next((1 / n for n, i in enumerate(ids, 1) if i in right), 0.0) for ids, right in pairs]
    return Scores(recall(1), recall(5), recall(_DEEP), mean(ranks), seconds)


def measure(search: Search, queries: Sequence[Tool]) -> Scores:
    """Ask every query of a set once."""
    started = time.perf_counter()
    found = [search(query["query"]) for query in queries]
    return judge(found, queries, (time.perf_counter() - started) / len(queries))


def ours(tools: Sequence[Tool]) -> Search:
    """Portico's search, as ids."""
    index = ToolIndex.build(tools)
    ids = {(tool["server"], tool["name"]): tool["id"] for tool in tools}
    return lambda query: [ids[hit.server, hit.name] for hit in index.search(query, _DEEP)]


def with_vectors(tools: Sequence[Tool], kept: Path = ROOT / ".bench" / "vectors") -> Search | None:
    """The same with vectors, which are kept between runs; None where the extra is missing."""
    from portico.gateway.search.embedding_model import NoModel, load
    from portico.gateway.search.vectors import Vectors

    try:
        model = load()
    except NoModel:
        return None
    index = ToolIndex.build(tools)
    vectors = Vectors(folder=str(kept), report=print, model=lambda: model)
    vectors.use(index, lambda: tools)
    vectors.wait()
    space = vectors.space
    if space is None:
        return None
    ids = {(tool["server"], tool["name"]): tool["id"] for tool in tools}
    return lambda query: [ids[hit.server, hit.name] for hit in space.search(query, _DEEP)]


def plain(way: type[Substrings] | type[PlainBM25], tools: Sequence[Tool]) -> Search:
    """One of the plain ways, as ids."""
    index = way(tools)
    return lambda query: [tools[place]["id"] for place in index.search(query, _DEEP)]


def contenders(name: str) -> Iterator[tuple[str, Scores]]:
    """Everyone's scores on one set."""
    folder = FOLDER / name
    tools, queries = read(folder / "corpus.jsonl"), read(folder / "queries.jsonl")
    yield "substring count", measure(plain(Substrings, tools), queries)
    theirs = fastmcp(folder, _DEEP)
    if theirs is not None:
        yield "FastMCP", judge(theirs[0], queries, theirs[1])
    yield PLAIN, measure(plain(PlainBM25, tools), queries)
    yield OURS, measure(ours(tools), queries)
    if (meant := with_vectors(tools)) is not None:
        yield VECTORS, measure(meant, queries)


def main() -> int:
    """Print a table a set, the means, and what it costs; a missed budget is a finding."""
    if not FOLDER.is_dir():
        print(f"the labelled sets are not there: {FOLDER}")
        return 1
    print(machine.facts(), flush=True)
    columns = ("", "R@1", "R@5", "R@10", "MRR", "ms a query")
    results: dict[str, dict[str, Scores]] = {}
    for name in SETS:
        results[name] = dict(contenders(name))
        rows = [[who, *scores.cells()] for who, scores in results[name].items()]
        print(f"\n{Table(name, columns, rows).markdown()}", flush=True)
    whos = list(results[SETS[0]])
    if "FastMCP" not in whos:
        print("- FastMCP left out: `python -m bench.peers` installs it\n")
    print(Table("mean R@5", whos, [[f"{five(results, who):.3f}" for who in whos]]).markdown())
    budgets = [at_least("mean R@5", five(results, OURS), 0.62, "")]
    if VECTORS in whos:
        budgets.append(at_least("mean R@5 with vectors", five(results, VECTORS), 0.67, ""))
    else:
        print("- vectors left out: `pip install -e '.[vectors]'` brings what they need\n")
    print(report.verdicts(budgets).markdown())
    for who in (OURS, VECTORS):
        if who in whos:
            worse = [name for name in SETS if results[name][who].first < results[name][PLAIN].first]
            print(f"{who}: R@1 below plain BM25: {', '.join(worse) or 'on no set'}")
    print(cost())
    return 0


def five(results: Mapping[str, Mapping[str, Scores]], who: str) -> float:
    """The mean over the sets."""
    return mean(of[who].five for of in results.values())


def cost() -> str:
    """The cost of a catalog of about 6,000 tools."""
    tools = read(CATALOG)
    build, index = timed(lambda: ToolIndex.build(tools))
    data = index.to_bytes()
    load, _ = timed(lambda: ToolIndex.from_bytes(data))
    rounds = [timed(partial(index.search, query))[0] for query in _SHORT for _ in range(20)]
    middle = sorted(rounds)[len(rounds) // 2]
    return (
        f"{len(index)} tools: built in {build:.2f} s, {len(data) / 1e6:.1f} MB stored, "
        f"loaded in {load * 1e3:.0f} ms, a short query {middle * 1e3:.2f} ms (p50)"
    )


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds, and what came of it."""
    started = time.perf_counter()
    done = work()
    return time.perf_counter() - started, done


if __name__ == "__main__":
    sys.exit(main())
