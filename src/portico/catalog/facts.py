"""What an upstream said of itself and offers, as it came: every definition is its own bytes."""

from collections.abc import Callable, Mapping

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
    omitted: int = 0
    """How many more it has, at least, that are beyond the limit."""

    def limited(self, most: int) -> "Listed":
        """The first so many items."""
        beyond = len(self.keys) - most
        if beyond <= 0:
            return self
        return Listed(
            items=self.items[:most],
            keys=self.keys[:most],
            more=self.more,
            page_size=self.page_size,
            omitted=self.omitted + beyond,
        )


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

    def only(self, allows: Callable[[str], bool]) -> "Facts":
        """The same without the tools that are not allowed."""
        tools = self.lists.get("tools")
        if tools is None or all(map(allows, tools.keys)):
            return self
        pairs = zip(tools.keys, tools.items, strict=True)
        kept = [(key, item) for key, item in pairs if allows(key)]
        listed = Listed(
            items=tuple([item for _, item in kept]),
            keys=tuple([key for key, _ in kept]),
            more=tools.more,
            page_size=tools.page_size,
            omitted=tools.omitted,
        )
        return Facts(
            version=self.version,
            introduction=self.introduction,
            lists={**self.lists, "tools": listed},
            taken=self.taken,
        )

    def limited(self, most: int) -> "Facts":
        """The same with at most so many items in each list."""
        if all(len(listed.keys) <= most for listed in self.lists.values()):
            return self
        lists = {kind: listed.limited(most) for kind, listed in self.lists.items()}
        return Facts(self.version, self.introduction, lists, self.taken)

    def same(self, other: "Facts | None") -> bool:
        """True if it offers the very same; when it was asked does not matter."""
        return other is not None and (self.version, self.introduction, self.lists) == (
            other.version,
            other.introduction,
            other.lists,
        )
