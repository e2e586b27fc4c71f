"""Two rankings as one: the seam where vectors join."""

from collections.abc import Iterable, Mapping

from portico.search.index import Hit

CALM = 10.0
"""Added to the best lexical score before dividing: where that is low, words should say little."""


def fuse(lexical: Iterable[Hit], cosines: Mapping[tuple[str, str], float], limit: int) -> list[Hit]:
    """Join hits with cosines by (server, name); scores are added, since ranks forget how sure."""
    words = {(hit.server, hit.name): hit.score for hit in lexical}
    scale = max(words.values(), default=0.0) + CALM
    both = {
        key: words.get(key, 0.0) / scale + cosines.get(key, 0.0) for key in {**words, **cosines}
    }
    best = sorted(both, key=lambda key: (-both[key], key))
    return [Hit(name, both[server, name], server) for server, name in best[: max(limit, 0)]]
