"""What an upstream said of itself and offers, as it came: every definition is its own bytes."""

from collections.abc import Mapping

from msgspec import Struct

from portico.model.version import Version

KINDS = ("tools", "resources", "templates", "prompts")


class Listed(Struct, frozen=True):
    """One whole list, all pages of it."""

    items: tuple[bytes, ...]
    """Each definition as raw JSON."""
    keys: tuple[str, ...]
    """What each is asked for by: its name, URI or URI template; all different."""
    more: bytes = b"{}"
    """The other fields of the first page (`_meta`, `ttlMs`, ...) as a raw JSON object."""
    page_size: int = 0
    """How many items the upstream itself puts on a page; 0 if it sent one page."""


class Facts(Struct, frozen=True):
    """One upstream as it was when it was last asked."""

    version: Version
    """The protocol version it was spoken to with."""
    introduction: bytes
    """The raw result of `initialize` or `server/discover`."""
    lists: Mapping[str, Listed]
    """By kind; one that the upstream has not got is missing."""
    taken: float
    """When it was asked, in seconds since the epoch."""

    def same(self, other: "Facts | None") -> bool:
        """True if it offers the very same; when it was asked does not matter."""
        return other is not None and (self.version, self.introduction, self.lists) == (
            other.version,
            other.introduction,
            other.lists,
        )
