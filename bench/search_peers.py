"""The peers of search: two simple methods, and FastMCP's in its own environment."""

import json
import subprocess
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from math import log
from pathlib import Path
from typing import Any

from bench.peers import FASTMCP
from portico.gateway.search.tokens import terms

_ANSWERS = Path(__file__).parent / "servers" / "fastmcp_search.py"
_PATIENCE_S = 900.0


def text_of(tool: Mapping[str, Any]) -> str:
    """All that there is to read of a tool."""
    properties: Mapping[str, Any] = (tool.get("inputSchema") or {}).get("properties") or {}
    schemas = [value for value in properties.values() if isinstance(value, Mapping)]
    described = [schema.get("description") or "" for schema in schemas]
    parts = [tool["server"], tool["name"], tool["description"] or "", *properties, *described]
    return " ".join(map(str, parts))


class Substrings:
    """Count the words of the query that a tool's text contains."""

    def __init__(self, tools: Sequence[Mapping[str, Any]]) -> None:
        self._texts = [text_of(tool).lower() for tool in tools]

    def search(self, query: str, limit: int) -> list[int]:
        words = query.lower().split()
        scores = [sum(word in text for word in words) for text in self._texts]
        return _best(dict(enumerate(scores)), limit)


class PlainBM25:
    """Okapi BM25 over one text, on the same terms as ours, so that only the ranking differs."""

    def __init__(self, tools: Sequence[Mapping[str, Any]]) -> None:
        counts = [Counter(terms(text_of(tool))) for tool in tools]
        lengths = [count.total() for count in counts]
        usual = sum(lengths) / len(lengths)
        self._postings: defaultdict[str, dict[int, float]] = defaultdict(dict)
        for place, count in enumerate(counts):
            for word, times in count.items():
                damped = times + 1.2 * (0.25 + 0.75 * lengths[place] / usual)
                self._postings[word][place] = times * 2.2 / damped
        self._size = len(counts)

    def search(self, query: str, limit: int) -> list[int]:
        scores: defaultdict[int, float] = defaultdict(float)
        for word in terms(query):
            found = self._postings.get(word, {})
            rarity = log(1 + (self._size - len(found) + 0.5) / (len(found) + 0.5))
            for place, weight in found.items():
                scores[place] += rarity * weight
        return _best(scores, limit)


def _best(scores: Mapping[int, float], limit: int) -> list[int]:
    found = [place for place, score in scores.items() if score > 0]
    return sorted(found, key=lambda place: (-scores[place], place))[:limit]


def fastmcp(folder: Path, limit: int) -> tuple[list[list[str]], float] | None:
    """The ids FastMCP finds for each query of a set, and its mean seconds; None without it."""
    if not FASTMCP.stamp.exists():
        return None
    ran = subprocess.run(
        [FASTMCP.path, _ANSWERS, folder, str(limit)],
        capture_output=True,
        text=True,
        check=True,
        timeout=_PATIENCE_S,
    )
    answer = json.loads(ran.stdout)
    return answer["found"], answer["seconds"]
