"""Search over tool definitions: lexical and pure, with optional vectors and a reranker."""

from typing import TYPE_CHECKING, Any

from portico.search.index import Hit, ToolIndex

if TYPE_CHECKING:
    from portico.search.searcher import Searcher as Searcher

__all__ = ["Hit", "Searcher", "ToolIndex"]


def __getattr__(name: str) -> Any:
    if name != "Searcher":
        raise AttributeError(f"module 'portico.search' has no attribute {name!r}")
    from portico.search.searcher import Searcher

    return Searcher
