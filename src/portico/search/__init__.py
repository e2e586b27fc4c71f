"""Search over tool definitions: lexical and pure, with vectors and a reranker where asked for."""

from portico.search.index import Hit, ToolIndex

__all__ = ["Hit", "ToolIndex"]
