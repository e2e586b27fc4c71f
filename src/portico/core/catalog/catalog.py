"""An immutable snapshot of an offer, which encodes every static answer once."""

from collections.abc import Callable, Mapping
from time import time
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct

from portico.core.catalog import cursor as cursors
from portico.core.definitions.definition_error import DefinitionError
from portico.core.definitions.header_params import header_params
from portico.core.model.methods import CAPABILITIES, LIST_KINDS, LISTS
from portico.core.model.offer import HeaderParam, Listed, Offer
from portico.core.model.version import MODERN, Version
from portico.core.protocol.codec import decoded, encode, may_mention
from portico.core.protocol.eras import SERVER_INFO_KEY, Members, members
from portico.core.protocol.line_reader import one_line
from portico.core.protocol.tasks import (
    EXTENSION,
    legacy_capabilities,
    modern_capabilities,
    with_task_support,
    without_task_support,
)

if TYPE_CHECKING:
    from portico.core.catalog.sanitize_offer import SanitizedItem

_MODERN_FIELDS = ("resultType", "ttlMs", "cacheScope")
_MAX_PAGES = 1000
_TASKS_SINCE = Version.V2025_11_25


class Identity(Struct, frozen=True, kw_only=True):
    """The name and version of a server of ours, and how it pages and caches its lists."""

    name: str
    version: str
    more: Mapping[str, Any] = {}
    """`title`, `description`, `websiteUrl`, `icons`."""
    instructions: str = ""
    extensions: Mapping[str, Any] = {}
    experimental: Mapping[str, Any] = {}
    ttl_ms: int = 0
    """How long a client may cache a list."""
    cache_scope: str = "private"
    page_size: int = 0
    """Items per page; 0 for a single page."""

    def introduce(self, offer: Offer) -> Offer:
        """Return the offer with this server's introduction and paging."""
        caching = {"ttlMs": self.ttl_ms, "cacheScope": self.cache_scope}
        info = {"name": self.name, "version": self.version, **self.more}
        intro: dict[str, Any] = {"capabilities": self._capabilities(offer)}
        if self.instructions:
            intro["instructions"] = self.instructions
        intro |= {**caching, "_meta": {SERVER_INFO_KEY: info}}
        more = encode(caching)
        lists = {
            kind: msgspec.structs.replace(listed, more=more, page_size=self.page_size)
            for kind, listed in offer.lists.items()
        }
        return msgspec.structs.replace(offer, introduction=encode(intro), lists=lists)

    def _capabilities(self, offer: Offer) -> dict[str, Any]:
        found: dict[str, Any] = {"logging": {}}
        for kind, parts in _CAPABILITY_LISTS.items():
            if kind in offer.declared or any(offer.listed(part).keys for part in parts):
                found[kind] = {"listChanged": True}
        if "resources" in found and offer.subscriptions:
            found["resources"]["subscribe"] = True
        if offer.completions or "completions" in offer.declared:
            found["completions"] = {}
        if self.experimental:
            found["experimental"] = self.experimental
        extensions = dict(self.extensions)
        if "tasks" in offer.declared:
            extensions.setdefault(EXTENSION, {})
        if extensions:
            found["extensions"] = extensions
        return found


class ListedTool(Struct, frozen=True):
    """A tool's definition, with the parts that calls need."""

    raw: bytes
    header_params: tuple[HeaderParam, ...]


class _Caching(Struct):
    ttlMs: int = 0  # noqa: N815  (fields of the wire)
    cacheScope: str = "private"  # noqa: N815


class Catalog:
    """An offer at one time, and the bytes of its static answers."""

    def __init__(
        self,
        offer: Offer,
        identity: Identity | None = None,
        *,
        number: int = 0,
        confirmed: bool = True,
        clock: Callable[[], float] = time,
        whole: Offer | None = None,
        sanitized: "tuple[SanitizedItem, ...]" = (),
    ) -> None:
        """Without an identity, it is the catalog of an upstream. `confirmed`: this process fetched
        it. `whole` is the offer as received, `sanitized` the items that sanitizing changed."""
        self.offer = offer if identity is None else identity.introduce(offer)
        self.whole = whole or offer
        self.sanitized = sanitized
        self.number = number
        """It grows with every change."""
        self.confirmed = confirmed
        self._is_ours = identity is not None
        self._own_identity = identity
        self._clock = clock
        intro = self._intro = members(self.offer.introduction)
        self._capabilities = members(intro.get("capabilities", b""))
        meta = members(intro.get("_meta", b""))
        self.identity = bytes(
            meta.get(SERVER_INFO_KEY, b"") if offer.version.modern else intro.get("serverInfo", b"")
        )
        """The server's name and version, as JSON."""
        # Versions before 2025-03-26 had completions without declaring them.
        implied = () if self._is_ours else ("completions",)
        self.kinds = frozenset({*self._capabilities, *implied})
        """The capabilities it declares."""
        self.incomplete_lists = frozenset(
            method
            for method, kind in LISTS.items()
            if not self._is_ours
            and kind not in offer.lists
            and CAPABILITIES[method] in self._capabilities
        )
        """The list methods that a server declares, but whose list could not be fetched whole."""
        self.static_lists: dict[tuple[str, Version], bytes] = {}
        """By method and version, the results that do not expire."""
        self.pages: dict[tuple[str, Version, str, int], bytes] = {}
        self._introductions: dict[tuple[Version, int], bytes] = {}
        self._tools: dict[str, ListedTool] = {}
        self._positions: dict[str, dict[str, int]] = {}

    def with_offer(self, offer: Offer) -> "Catalog":
        """Return the same catalog with another offer: a part of it, or with more entries."""
        catalog = Catalog(
            offer if self._is_ours else _declaring(offer),
            self._own_identity,
            number=self.number,
            confirmed=self.confirmed,
            clock=self._clock,
            whole=self.whole,
            sanitized=self.sanitized,
        )
        # Which part of an incomplete list is visible is unknown.
        catalog.incomplete_lists = frozenset()
        return catalog

    def without_entries(self) -> "Catalog":
        """Return the catalog to show until its entries are known: it declares every kind of list,
        and expires at once."""
        identity = self._own_identity
        catalog = Catalog(
            _declaring(msgspec.structs.replace(self.offer.declaring_all(), lists={})),
            None if identity is None else msgspec.structs.replace(identity, ttl_ms=0),
            number=self.number,
            confirmed=False,
        )
        catalog.incomplete_lists = frozenset()  # the server itself would list hidden entries
        return catalog

    def handshake(self, version: Version) -> bytes:
        """Return the result of `initialize`."""
        ready = self._introductions.get((version, 0))
        if ready is None:
            intro = self._intro
            result: dict[str, Any] = {"protocolVersion": version.text}
            result |= {key: intro[key] for key in intro if key != "protocolVersion"}
            if self.offer.version.modern:
                for key in ("supportedVersions", *_MODERN_FIELDS):
                    result.pop(key, None)
                result["capabilities"] = self._legacy_capabilities(version)
                result["serverInfo"] = Raw(self.identity or b'{"name":"","version":""}')
                meta = members(intro.get("_meta", b""))
                meta.pop(SERVER_INFO_KEY, None)
                result["_meta"] = meta
                if not meta:
                    del result["_meta"]
            ready = self._introductions[version, 0] = one_line(encode(result))
        return ready

    def _legacy_capabilities(self, version: Version) -> Raw:
        """Return a modern server's capabilities as a legacy client understands them."""
        raw = bytes(self._intro.get("capabilities", b"{}"))
        shown = legacy_capabilities(raw, has_tasks=version >= _TASKS_SINCE)
        if not self._is_ours:
            return Raw(shown)
        late = {"extensions", "completions" if version < Version.V2025_03_26 else ""}
        declared = members(shown)
        return Raw(encode({key: declared[key] for key in declared if key not in late}))

    def discovery(self, version: Version) -> bytes:
        """Return the result of `server/discover`."""
        intro = self._intro
        ttl = self._ttl_ms(self.offer.introduction)
        ready = self._introductions.get((version, ttl))
        if ready is None:
            own = {key: intro[key] for key in intro if key not in ("protocolVersion", "serverInfo")}
            result: dict[str, Any] = own | {"supportedVersions": [v.text for v in MODERN]}
            if not self.offer.version.modern and "capabilities" in result:
                result["capabilities"] = Raw(modern_capabilities(bytes(result["capabilities"])))
            result |= self._modern(intro, ttl, self.offer.introduction)
            if len(self._introductions) > len(Version):
                self._introductions.clear()
            ready = self._introductions[version, ttl] = one_line(encode(result))
        return ready

    def page(self, kind: str, version: Version, cursor: str) -> bytes | None:
        """Return a page of a list, or None if the cursor is unknown."""
        listed = self.offer.listed(kind)
        ttl = self._ttl_ms(listed.more) if version.modern else 0
        ready = self.pages.get((kind, version, cursor, ttl))
        if ready is None:
            start = 0
            if cursor:
                found = cursors.read(cursor, kind, self._positions_of(kind))
                if found is None:
                    return None
                start = found
            ready = self._build(kind, listed, version, start, ttl)
            if len(self.pages) > _MAX_PAGES:
                self.pages.clear()
            # Cursors of an older catalog also work, but only current ones are cached: they are few.
            if not cursor or _is_cursor_of(kind, listed, start, cursor):
                self.pages[kind, version, cursor, ttl] = ready
        return ready

    def tool(self, name: str) -> ListedTool | None:
        """Return a tool by its name."""
        tool = self._tools.get(name)
        if tool is None and (place := self._positions_of("tools").get(name)) is not None:
            raw = self.offer.listed("tools").items[place]
            tool = self._tools[name] = ListedTool(raw, _header_params(raw))
        return tool

    def uri_of(self, name: str, *, foreign: bool = False) -> str:
        """Return the URI of the first resource with this name, or "". An upstream resolves its own
        names, so for its catalog this is "" unless `foreign`."""
        if not self._is_ours and not foreign:
            return ""
        resources = self.offer.listed("resources")
        named = zip(resources.keys, resources.items, strict=True)
        return next((uri for uri, raw in named if _decode_name(raw).name == name), "")

    def changed(self, before: "Catalog") -> list[str]:
        """Return the kinds of lists with other entries than in an earlier catalog."""
        return [
            kind
            for kind, parts in _CAPABILITY_LISTS.items()
            if any(self._entries(part) != before._entries(part) for part in parts)
        ]

    def _entries(self, kind: str) -> tuple[bytes, ...] | None:
        """Return the definitions of a list, without the fields beside them; None if unknown."""
        listed = self.offer.lists.get(kind)
        return None if listed is None else listed.items

    def _positions_of(self, kind: str) -> dict[str, int]:
        places = self._positions.get(kind)
        if places is None:
            keys = self.offer.listed(kind).keys
            places = self._positions[kind] = {key: place for place, key in enumerate(keys)}
        return places

    def _build(self, kind: str, listed: Listed, version: Version, start: int, ttl: int) -> bytes:
        size = listed.page_size or len(listed.items)
        shown = listed.items[start : start + size]
        if kind == "tools":
            shown = self._shown_tools(shown, version)
        end = start + len(shown)
        more = members(listed.more)
        rest: dict[str, Any] = {key: more[key] for key in more if key not in _MODERN_FIELDS}
        if version.modern:
            rest |= self._modern(more, ttl, listed.more)
        elif self.offer.version.modern:
            meta = members(more.get("_meta", b""))
            meta.pop(SERVER_INFO_KEY, None)
            rest.pop("_meta", None)
            if meta:
                rest["_meta"] = meta
        if shown and end < len(listed.items):
            rest["nextCursor"] = cursors.write(kind, end, listed.keys[end - 1])
        opened = b'{"%s":[%s]' % (LIST_KINDS[kind].field.encode(), b",".join(shown))
        # On one line, because some transports end a message at a line break.
        return one_line(opened + (b"," + encode(rest)[1:] if rest else b"}"))

    def _shown_tools(self, tools: tuple[bytes, ...], version: Version) -> tuple[bytes, ...]:
        """Return tools as a version has them."""
        if self._is_ours and not version.modern:
            tools = tuple([_older_tool(raw, version) for raw in tools])
        if self._is_ours or (version.modern and not self.offer.version.modern):
            # Only 2025-11-25 has this field; in the modern era the server decides.
            return tools if version == _TASKS_SINCE else tuple(map(without_task_support, tools))
        if self.offer.version.modern and version == _TASKS_SINCE and self._has_tasks:
            return tuple(map(with_task_support, tools))
        return tools

    @property
    def _has_tasks(self) -> bool:
        return EXTENSION in members(self._capabilities.get("extensions", b""))

    def _modern(self, more: Members, ttl: int, raw: bytes) -> dict[str, Any]:
        meta = members(more.get("_meta", b""))
        if self.identity:
            meta.setdefault(SERVER_INFO_KEY, Raw(self.identity))
        scope = _caching(raw).cacheScope if self.offer.version.modern else "private"
        fields: dict[str, Any] = {
            "resultType": "complete",
            "ttlMs": ttl,
            "cacheScope": "public" if scope == "public" else "private",
        }
        return fields | {"_meta": meta} if meta else fields

    def _ttl_ms(self, raw: bytes) -> int:
        """Return the rest of the server's TTL, in whole seconds; 0 unless this process fetched the
        list."""
        if self._is_ours:
            return _caching(raw).ttlMs
        if not self.confirmed or not self.offer.version.modern:
            return 0
        left = _caching(raw).ttlMs - (self._clock() - self.offer.taken) * 1000
        return max(0, int(left / 1000) * 1000)


def _declaring(offer: Offer) -> Offer:
    """Return an upstream's offer that declares every kind that it lists, or has to."""
    intro = members(offer.introduction)
    declared = members(intro.get("capabilities", b""))
    missing = [
        kind
        for kind, parts in _CAPABILITY_LISTS.items()
        if kind not in declared
        and (kind in offer.declared or any(offer.listed(part).keys for part in parts))
    ]
    if not missing:
        return offer
    capabilities = {**declared, **{kind: Raw(b"{}") for kind in missing}}
    intro["capabilities"] = Raw(encode(capabilities))
    return msgspec.structs.replace(offer, introduction=encode(intro))


_CAPABILITY_LISTS = {
    "tools": ("tools",),
    "prompts": ("prompts",),
    "resources": ("resources", "templates"),
}
"""The lists of each capability."""


class _ToolSchema(Struct):
    inputSchema: dict[str, Any] = {}  # noqa: N815  (a field of the wire)


class _NamedResource(Struct):
    name: str = ""


_decode_tool = msgspec.json.Decoder(_ToolSchema, float_hook=float).decode
_decode_name = msgspec.json.Decoder(_NamedResource).decode


def _caching(raw: bytes) -> _Caching:
    return decoded(raw, _Caching) or _Caching()


def _header_params(raw: bytes) -> tuple[HeaderParam, ...]:
    # Few tools have any, and searching the bytes is far faster than walking the schema.
    if not may_mention(raw, b"x-mcp-header"):
        return ()
    try:
        return header_params(_decode_tool(raw).inputSchema)
    except (msgspec.DecodeError, DefinitionError, RecursionError):
        return ()


def _older_tool(raw: bytes, version: Version) -> bytes:
    """Remove an output schema that this version does not allow: none before 2025-06-18, and only
    of objects before 2026-07-28."""
    if not may_mention(raw, b'"outputSchema"'):
        return raw
    kind = members(members(raw).get("outputSchema", b"")).get("type", b"")
    if version >= Version.V2025_06_18 and bytes(kind) == b'"object"':
        return raw
    return without_output_schema(raw)


def without_output_schema(raw: bytes) -> bytes:
    """Return the definition of a tool without its output schema."""
    if raw.find(b"outputSchema") < 0 and raw.find(b"\\") < 0:
        return raw
    fields = members(raw)
    return raw if fields.pop("outputSchema", None) is None else encode(fields)


def _is_cursor_of(kind: str, listed: Listed, start: int, cursor: str) -> bool:
    """True if a page of this list has this cursor."""
    size = listed.page_size
    if not size or start % size or not 0 < start < len(listed.keys):
        return False
    return cursors.write(kind, start, listed.keys[start - 1]) == cursor
