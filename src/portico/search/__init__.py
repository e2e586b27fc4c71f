"""Search over tool definitions, with no dependency and no I/O."""

from portico.search.fusion import fuse
from portico.search.index import Hit, ToolIndex

__all__ = ["Hit", "ToolIndex", "fuse"]
