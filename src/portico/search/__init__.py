"""Search over tool definitions: lexical and pure, with optional vectors and a reranker."""

from portico.search.index import Hit, ToolIndex

__all__ = ["Hit", "ToolIndex"]
