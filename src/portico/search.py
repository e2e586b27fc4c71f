"""Search over tool definitions: lexical and pure, with optional vectors and a reranker."""

from typing import TYPE_CHECKING, Any

from portico.gateway.search.index import Hit, ToolIndex

if TYPE_CHECKING:
    from portico.gateway.search.searcher import Searcher

__all__ = ["Hit", "Searcher", "ToolIndex"]


def __getattr__(name: str) -> Any:
    if name != "Searcher":
        raise AttributeError(f"module 'portico.search' has no attribute {name!r}")
    from portico.gateway.search.searcher import Searcher

    return Searcher
