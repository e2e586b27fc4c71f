"""An immutable snapshot of an offer that serialises every static answer once."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from portico.catalog import cursor as cursors
from portico.model.offer import Item, Offer
from portico.model.version import MODERN, Version
from portico.protocol.eras import SERVER_INFO_KEY

_FIELDS = {
    "tools": b'"tools":[',
    "resources": b'"resources":[',
    "templates": b'"resourceTemplates":[',
    "prompts": b'"prompts":[',
}


class Identity(Struct, frozen=True, kw_only=True):
    """What a server says of itself."""

    name: str
    version: str
    more: Mapping[str, Any] = {}
    """`title`, `description`, `websiteUrl`, `icons`."""
    instructions: str = ""
    extensions: Mapping[str, Any] = {}
    experimental: Mapping[str, Any] = {}
    ttl_ms: int = 0
    """How long a client may keep a list before it asks again."""
    cache_scope: str = "private"
    page_size: int = 0
    """Items a page; 0 for all in one."""

    def info(self) -> dict[str, Any]:
        """The `Implementation` object."""
        return {"name": self.name, "version": self.version, **self.more}


class Catalog:
    """What one endpoint offers at one time, and the bytes that say so."""

    def __init__(self, identity: Identity, offer: Offer, number: int = 0) -> None:
        self.number = number
        """Grows with every change."""
        self.offer = offer
        self.identity = msgspec.json.encode(identity.info())
        self._identity = identity
        self.kinds = _kinds(offer)
        self._tools = {item.key: item for item in offer.tools}
        self._pages: dict[tuple[str, Version, str], bytes] = {}
        self._keys: dict[str, dict[str, int]] = {}
        self._handshakes: dict[Version, bytes] = {}

    def tool(self, name: str) -> Item | None:
        """A tool by its name."""
        return self._tools.get(name)

    def uri_of(self, name: str) -> str:
        """The URI of the first resource with this name; empty if there is none."""
        return next((item.key for item in self.offer.resources if item.name == name), "")

    def handshake(self, version: Version) -> bytes:
        """The result of `initialize`."""
        ready = self._handshakes.get(version)
        if ready is None:
            result: dict[str, Any] = {
                "protocolVersion": version.text,
                "capabilities": self._capabilities(version),
                "serverInfo": Raw(self.identity),
            }
            if self._identity.instructions:
                result["instructions"] = self._identity.instructions
            ready = self._handshakes[version] = msgspec.json.encode(result)
        return ready

    def discovery(self, version: Version) -> bytes:
        """The result of `server/discover`."""
        ready = self._handshakes.get(version)
        if ready is None:
            result: dict[str, Any] = {
                "supportedVersions": [v.text for v in MODERN],
                "capabilities": self._capabilities(version),
            }
            if self._identity.instructions:
                result["instructions"] = self._identity.instructions
            opened = msgspec.json.encode(result)[:-1]
            ready = self._handshakes[version] = opened + self._tail(version)
        return ready

    def page(self, kind: str, version: Version, cursor: str) -> bytes | None:
        """A page of a list, or None for a cursor that nobody gave out."""
        ready = self._pages.get((kind, version, cursor))
        if ready is None:
            start = 0
            if cursor:
                found = cursors.read(cursor, kind, self._places(kind))
                if found is None:
                    return None
                start = found
            ready = self._build(kind, version, start)
            # Cursors of an older catalog are good too, but only ours are kept: they are few.
            if not cursor or self._is_ours(kind, start, cursor):
                self._pages[kind, version, cursor] = ready
        return ready

    def _build(self, kind: str, version: Version, start: int) -> bytes:
        items: tuple[Item, ...] = getattr(self.offer, kind)
        size = self._identity.page_size or len(items)
        shown = items[start : start + size]
        bodies = [item.form(version) for item in shown]
        parts = [b"{", _FIELDS[kind], b",".join(bodies), b"]"]
        end = start + len(shown)
        if shown and end < len(items):
            parts += [b',"nextCursor":"', cursors.write(kind, end, shown[-1].key).encode(), b'"']
        return b"".join((*parts, self._tail(version)))

    def _tail(self, version: Version) -> bytes:
        """What closes a static result: nothing more in the legacy era."""
        if not version.modern:
            return b"}"
        more = {
            "resultType": "complete",
            "ttlMs": self._identity.ttl_ms,
            "cacheScope": self._identity.cache_scope,
            "_meta": {SERVER_INFO_KEY: Raw(self.identity)},
        }
        return b"," + msgspec.json.encode(more)[1:]

    def _places(self, kind: str) -> dict[str, int]:
        places = self._keys.get(kind)
        if places is None:
            items: tuple[Item, ...] = getattr(self.offer, kind)
            places = self._keys[kind] = {item.key: place for place, item in enumerate(items)}
        return places

    def _is_ours(self, kind: str, start: int, cursor: str) -> bool:
        items: tuple[Item, ...] = getattr(self.offer, kind)
        size = self._identity.page_size
        if not size or start % size or not 0 < start < len(items):
            return False
        return cursors.write(kind, start, items[start - 1].key) == cursor

    def _capabilities(self, version: Version) -> dict[str, Any]:
        shown: dict[str, Any] = {"logging": {}}
        for kind in ("tools", "prompts", "resources"):
            if kind in self.kinds:
                shown[kind] = {"listChanged": True}
        if "resources" in shown and self.offer.subscriptions:
            shown["resources"]["subscribe"] = True
        if "completions" in self.kinds and version >= Version.V2025_03_26:
            shown["completions"] = {}
        if self._identity.experimental:
            shown["experimental"] = dict(self._identity.experimental)
        if self._identity.extensions and version.modern:
            shown["extensions"] = dict(self._identity.extensions)
        return shown


def _kinds(offer: Offer) -> frozenset[str]:
    present = {
        "tools": offer.tools,
        "resources": offer.resources or offer.templates,
        "prompts": offer.prompts,
        "completions": offer.completions,
    }
    return offer.capabilities | {kind for kind, there in present.items() if there}
