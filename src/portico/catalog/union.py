"""What several servers offer together at one time, and where each part of it leads."""

from _blake2 import blake2b
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from portico.catalog.clashes import clashes
from portico.catalog.ownership import Owned, Ownership
from portico.catalog.share import Share
from portico.model.offer import Item

Place = tuple[Share, str]
"""Whose it is, and what it is called there."""


class Union:
    """An immutable whole of several shares, in the order of their servers."""

    def __init__(self, shares: Iterable[Share]) -> None:
        self.shares = {share.server: share for share in shares}

    def only(self, servers: frozenset[str]) -> "Union":
        """The part of some servers."""
        return Union(share for share in self.shares.values() if share.server in servers)

    @cached_property
    def tool_count(self) -> int:
        """How many tools there are in all."""
        return sum(len(share.listed("tools").keys) for share in self.shares.values())

    @cached_property
    def version(self) -> str:
        """A digest of all that is searched: the same tools have the same, in any process."""
        digest = blake2b(digest_size=16)
        for share in self.shares.values():
            digest.update(share.version)
        return digest.hexdigest()

    def tool(self, name: str) -> Place | None:
        """Where a tool is, by its exposed name."""
        return self._tools.get(name)

    def prompt(self, name: str) -> Place | None:
        """Where a prompt is, by its exposed name."""
        return self._prompts.get(name)

    def resource(self, uri: str) -> tuple[str | None, str]:
        """The server and its own URI for one that a client has."""
        return self.ownership.read(uri)

    @cached_property
    def ownership(self) -> Ownership:
        """Whose resource is whose."""
        return Ownership(
            Owned(share.server, share.listed("resources").keys, share.listed("templates").keys)
            for share in self.shares.values()
        )

    @cached_property
    def clashes(self) -> dict[str, list[str]]:
        """By server, the resources that it and another one claim."""
        return clashes(self.ownership)

    def tool_items(self, names: Sequence[str] | None = None) -> tuple[Item, ...]:
        """All tools, or some, as they are shown."""
        if names is None:
            return tuple(
                _tool(share, key, shown)
                for share in self.shares.values()
                for key, shown in share.tools.items()
            )
        found = ((name, self._tools.get(name)) for name in names)
        return tuple(_tool(*place, name) for name, place in found if place is not None)

    def with_ui(self) -> list[str]:
        """The exposed names of tools that need to be listed for their page to be shown."""
        return [name for share in self.shares.values() for name in share.with_ui]

    def prompt_items(self) -> tuple[Item, ...]:
        """All prompts, as they are shown."""
        return tuple(
            _item(share.renamed("prompts", key, "name", shown), shown)
            for share in self.shares.values()
            for key, shown in share.prompts.items()
        )

    def resource_items(self, kind: str) -> tuple[Item, ...]:
        """All resources or templates, as they are shown."""
        return tuple(self._resources(kind, "uri" if kind == "resources" else "uriTemplate"))

    def _resources(self, kind: str, field: str) -> Iterator[Item]:
        for share in self.shares.values():
            for key in share.listed(kind).keys:
                shown = self.ownership.shown(share.server, key)
                yield _item(share.renamed(kind, key, field, shown), shown)

    @cached_property
    def _tools(self) -> dict[str, Place]:
        return {
            shown: (share, key)
            for share in self.shares.values()
            for key, shown in share.tools.items()
        }

    @cached_property
    def _prompts(self) -> dict[str, Place]:
        return {
            shown: (share, key)
            for share in self.shares.values()
            for key, shown in share.prompts.items()
        }


def _tool(share: Share, key: str, shown: str) -> Item:
    raw = share.renamed("tools", key, "name", shown)
    return Item(
        key=shown, name=shown, modern=raw, legacy=raw, header_params=share.header_params(key)
    )


def _item(raw: bytes, shown: str) -> Item:
    return Item(key=shown, name=shown, modern=raw, legacy=raw)
