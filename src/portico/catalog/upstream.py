"""The static answers of one upstream, made from its own words."""

from collections.abc import Callable
from time import time
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct

from portico.catalog import cursor as cursors
from portico.catalog.facts import Facts, Listed
from portico.definitions.errors import DefinitionError
from portico.definitions.headers import header_params
from portico.model.methods import CAPABILITIES, LISTS
from portico.model.offer import Item
from portico.model.version import MODERN, Version
from portico.protocol.codec import encode
from portico.protocol.eras import SERVER_INFO_KEY, Members, members
from portico.protocol.lines import one_line
from portico.protocol.tasks import without_task_support, without_tasks_raw

if TYPE_CHECKING:
    from portico.catalog.reveal import Hidden

FIELDS = {
    "tools": "tools",
    "resources": "resources",
    "templates": "resourceTemplates",
    "prompts": "prompts",
}
_OF_THE_ERA = ("resultType", "ttlMs", "cacheScope")


class _Caching(Struct):
    ttlMs: int = 0  # noqa: N815  (fields of the wire)
    cacheScope: str = "private"  # noqa: N815


class UpstreamCatalog:
    """What one upstream offers at one time, and the bytes that say so."""

    def __init__(
        self,
        facts: Facts,
        *,
        confirmed: bool,
        number: int = 0,
        clock: Callable[[], float] = time,
        allows: Callable[[str], bool] | None = None,
        reveals: bool = False,
    ) -> None:
        """`confirmed` if this process has asked the upstream itself; `allows` picks its tools;
        `reveals` writes out hidden characters."""
        self.whole = facts
        """As it came, whatever is shown of it."""
        facts = facts if allows is None else facts.only(allows)
        self.hidden: tuple[Hidden, ...] = ()
        """The definitions that hide something, if that is looked for."""
        if reveals:
            from portico.catalog.reveal import reveal_facts

            facts, self.hidden = reveal_facts(facts)
        self.facts = facts
        self.number = number
        self.confirmed = confirmed
        self._clock = clock
        said = members(facts.introduction)
        self._said = said
        self._capabilities = members(said.get("capabilities", b""))
        meta = members(said.get("_meta", b""))
        self.identity = bytes(
            meta.get(SERVER_INFO_KEY, b"") if facts.version.modern else said.get("serverInfo", b"")
        )
        # Versions before 2025-03-26 had completions without declaring them.
        self.kinds = frozenset({*self._capabilities, "completions"})
        self.unheard = frozenset(
            method
            for method, kind in LISTS.items()
            if kind not in facts.lists and CAPABILITIES[method] in self._capabilities
        )
        """The lists that the upstream declares, but that could not be had whole."""
        self.settled: dict[tuple[str, Version], bytes] = {}
        """By method and version, results that stay as they are."""
        self._pages: dict[tuple[str, Version, str, int], bytes] = {}
        self._introductions: dict[tuple[Version, int], bytes] = {}
        self._tools: dict[str, Item] | None = None

    def declares(self, capability: str) -> bool:
        """True if the upstream says that it has this."""
        return capability in self._capabilities

    def handshake(self, version: Version) -> bytes:
        """The result of `initialize`."""
        ready = self._introductions.get((version, 0))
        if ready is None:
            said = self._said
            result: dict[str, Any] = {"protocolVersion": version.text}
            result |= {key: said[key] for key in said if key != "protocolVersion"}
            if self.facts.version.modern:
                for key in ("supportedVersions", *_OF_THE_ERA):
                    result.pop(key, None)
                _withhold_tasks(result)
                result["serverInfo"] = Raw(self.identity or b'{"name":"","version":""}')
                meta = members(said.get("_meta", b""))
                meta.pop(SERVER_INFO_KEY, None)
                result["_meta"] = meta
                if not meta:
                    del result["_meta"]
            ready = self._introductions[version, 0] = one_line(encode(result))
        return ready

    def discovery(self, version: Version) -> bytes:
        """The result of `server/discover`."""
        said = self._said
        ttl = self._ttl_ms(self.facts.introduction)
        ready = self._introductions.get((version, ttl))
        if ready is None:
            own = {key: said[key] for key in said if key not in ("protocolVersion", "serverInfo")}
            result: dict[str, Any] = own | {"supportedVersions": [v.text for v in MODERN]}
            if not self.facts.version.modern:
                _withhold_tasks(result)
            result |= self._modern(said, ttl, self.facts.introduction)
            if len(self._introductions) > len(Version):
                self._introductions.clear()
            ready = self._introductions[version, ttl] = one_line(encode(result))
        return ready

    def page(self, kind: str, version: Version, cursor: str) -> bytes | None:
        """A page of a list, or None for a cursor that nobody gave out."""
        listed = self.facts.lists.get(kind, _NOTHING)
        ttl = self._ttl_ms(listed.more) if version.modern else 0
        ready = self._pages.get((kind, version, cursor, ttl))
        if ready is None:
            start = 0
            if cursor:
                places = {key: place for place, key in enumerate(listed.keys)}
                found = cursors.read(cursor, kind, places)
                if found is None:
                    return None
                start = found
            ready = self._build(kind, listed, version, start, ttl)
            if len(self._pages) > 1000:  # remainders of the past
                self._pages.clear()
            self._pages[kind, version, cursor, ttl] = ready
        return ready

    def tool(self, name: str) -> Item | None:
        """A tool by its name."""
        if self._tools is None:
            listed = self.facts.lists.get("tools", _NOTHING)
            self._tools = {
                key: _item(key, raw) for key, raw in zip(listed.keys, listed.items, strict=True)
            }
        return self._tools.get(name)

    def changed(self, before: "UpstreamCatalog") -> list[str]:
        """The kinds of lists that differ from an earlier catalog's."""
        now, then = self.facts.lists, before.facts.lists
        return [
            kind
            for kind, parts in (
                ("tools", ("tools",)),
                ("resources", ("resources", "templates")),
                ("prompts", ("prompts",)),
            )
            if any(now.get(part) != then.get(part) for part in parts)
        ]

    def _build(self, kind: str, listed: Listed, version: Version, start: int, ttl: int) -> bytes:
        size = listed.page_size or len(listed.items)
        shown = listed.items[start : start + size]
        if kind == "tools" and version.modern and not self.facts.version.modern:
            shown = tuple(map(without_task_support, shown))
        end = start + len(shown)
        more = members(listed.more)
        rest: dict[str, Any] = {key: more[key] for key in more if key not in _OF_THE_ERA}
        if version.modern:
            rest |= self._modern(more, ttl, listed.more)
        elif self.facts.version.modern:
            meta = members(more.get("_meta", b""))
            meta.pop(SERVER_INFO_KEY, None)
            rest.pop("_meta", None)
            if meta:
                rest["_meta"] = meta
        if shown and end < len(listed.items):
            rest["nextCursor"] = cursors.write(kind, end, listed.keys[end - 1])
        opened = b'{"%s":[%s]' % (FIELDS[kind].encode(), b",".join(shown))
        # Ready for any transport, also one that ends a message where a line ends.
        return one_line(opened + (b"," + encode(rest)[1:] if rest else b"}"))

    def _modern(self, more: Members, ttl: int, raw: bytes) -> dict[str, Any]:
        meta = members(more.get("_meta", b""))
        if self.identity:
            meta.setdefault(SERVER_INFO_KEY, Raw(self.identity))
        scope = _caching(raw).cacheScope if self.facts.version.modern else "private"
        fields: dict[str, Any] = {
            "resultType": "complete",
            "ttlMs": ttl,
            "cacheScope": "public" if scope == "public" else "private",
        }
        return fields | {"_meta": meta} if meta else fields

    def _ttl_ms(self, raw: bytes) -> int:
        """What is left of the time that the upstream gave, in whole seconds; 0 unless it was
        asked by this very process."""
        if not self.confirmed or not self.facts.version.modern:
            return 0
        left = _caching(raw).ttlMs - (self._clock() - self.facts.taken) * 1000
        return max(0, int(left / 1000) * 1000)


_NOTHING = Listed((), ())


def _withhold_tasks(result: dict[str, Any]) -> None:
    """Say nothing of tasks to a client of the other era, which could not follow them."""
    if "capabilities" in result:
        result["capabilities"] = Raw(without_tasks_raw(bytes(result["capabilities"])))


def _caching(raw: bytes) -> _Caching:
    try:
        return msgspec.json.decode(raw, type=_Caching)
    except msgspec.DecodeError:
        return _Caching()


class _Tool(Struct):
    inputSchema: dict[str, Any] = {}  # noqa: N815  (a field of the wire)


_tool = msgspec.json.Decoder(_Tool, float_hook=float).decode


def _item(key: str, raw: bytes) -> Item:
    try:
        declared = header_params(_tool(raw).inputSchema)
    except (msgspec.DecodeError, DefinitionError, RecursionError):
        declared = ()
    return Item(key=key, name=key, modern=raw, legacy=raw, header_params=declared)
