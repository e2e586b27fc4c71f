"""One server's part in a catalog of many: what it offers, and under which names."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from portico.catalog.exposed_names import exposed_names
from portico.catalog.resource_routing import ResourceRouting, ServerResources
from portico.model.digest import blake2b
from portico.model.offer import Listed, Offer
from portico.protocol.codec import decoded
from portico.protocol.eras import members
from portico.protocol.tasks import without_task_support

if TYPE_CHECKING:
    from portico.definitions.schema import Schema

_MAX_UI = 50
"""Of a server: a model reads them in every conversation. The others are found by search."""


class _Tool(msgspec.Struct):
    meta: dict[str, msgspec.Raw] = msgspec.field(default_factory=dict, name="_meta")


class NamespacedOffer:
    """What one server offers at one time."""

    def __init__(self, server: str, offer: Offer, name_limit: int | None = None) -> None:
        """Without a limit, names stay as they are."""
        self.server = server
        self.offer = offer
        self._limit = name_limit

    def listed(self, kind: str) -> Listed:
        """One of its lists; empty if it has none."""
        return self.offer.listed(kind)

    @cached_property
    def tools(self) -> Mapping[str, str]:
        """By its own name, what each tool is called among those of all servers."""
        return self._names("tools")

    @cached_property
    def prompts(self) -> Mapping[str, str]:
        """The same of prompts."""
        return self._names("prompts")

    def names(self, kind: str) -> Mapping[str, str]:
        """The same of either."""
        return self.tools if kind == "tools" else self.prompts

    def _names(self, kind: str) -> Mapping[str, str]:
        keys = self.listed(kind).keys
        if self._limit is None:
            return dict(zip(keys, keys, strict=True))
        return exposed_names(self.server, keys, self._limit)

    @cached_property
    def with_ui(self) -> Sequence[str]:
        """The exposed names of its tools that a client shows with a page of the server's (MCP
        Apps), as many as may be listed."""
        listed = self.listed("tools")
        pairs = zip(listed.keys, listed.items, strict=True)
        found = (self.tools[key] for key, raw in pairs if b"_meta" in raw and _has_ui(raw))
        return tuple(islice(found, _MAX_UI))

    @cached_property
    def version(self) -> bytes:
        """A digest of all that is searched."""
        listed = self.listed("tools")
        return blake2b(b"\0".join((self.server.encode(), *listed.items)), digest_size=16).digest()

    def raw(self, kind: str, key: str) -> bytes:
        """A definition, with nothing of tasks, which nobody could follow up among many servers."""
        return without_task_support(self.listed(kind).items[self._places(kind)[key]])

    def definition(self, tool: str) -> dict[str, Any]:
        """A tool's definition; what is no JSON object is empty."""
        try:
            found = msgspec.json.decode(self.raw("tools", tool))
        except (msgspec.DecodeError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def renamed(self, kind: str, key: str, field: str, shown: str) -> bytes:
        """A definition with what it is asked for by replaced; as it came if that is the same."""
        raw = self.raw(kind, key)
        if key == shown:
            return raw
        return with_field(raw, field, shown)

    def with_lists(self, lists: Mapping[str, Listed]) -> "NamespacedOffer":
        """The same with other lists, whose items it has."""
        seen = NamespacedOffer(
            self.server, msgspec.structs.replace(self.offer, lists=lists), self._limit
        )
        # A name is made with a look at all others, so it is not made again of those that are left.
        seen.tools = {key: self.tools[key] for key in seen.listed("tools").keys}
        seen.prompts = {key: self.prompts[key] for key in seen.listed("prompts").keys}
        return seen

    def hides(self, uri: str, seen: "NamespacedOffer") -> bool:
        """True if this URI is of a resource or template that is not among those to be seen."""
        key = self._resources.key(uri)
        there = seen._resources
        return key is not None and key not in there.listed and key not in there.templates

    @cached_property
    def _resources(self) -> ResourceRouting:
        listed = (self.listed("resources").keys, self.listed("templates").keys)
        return ResourceRouting([ServerResources(self.server, *listed)])

    def schema(self, tool: str) -> "Schema | None":
        """What its arguments must be; None if that cannot be said."""
        if tool not in self.schemas:
            from portico.definitions.definition_error import SchemaError
            from portico.definitions.schema import Schema

            source = self.definition(tool).get("inputSchema")
            schema = Schema(source, foreign=True) if isinstance(source, dict) else None
            try:
                if schema is not None:
                    schema.check()
            except SchemaError:
                schema = None  # the server, which wrote it, may still understand its arguments
            self.schemas[tool] = schema
        return self.schemas[tool]

    @cached_property
    def schemas(self) -> "dict[str, Schema | None]":
        return {}

    def _places(self, kind: str) -> Mapping[str, int]:
        known = self._known.get(kind)
        if known is None:
            keys = self.listed(kind).keys
            known = self._known[kind] = {key: place for place, key in enumerate(keys)}
        return known

    @cached_property
    def _known(self) -> dict[str, Mapping[str, int]]:
        return {}


def with_field(raw: bytes, field: str, value: str) -> bytes:
    """A definition with another text in one of its fields."""
    fields = members(raw)
    fields[field] = msgspec.Raw(msgspec.json.encode(value))
    return msgspec.json.encode(fields)


def _has_ui(raw: bytes) -> bool:
    """True if it has `_meta.ui`, or the key that this had in drafts."""
    meta = (decoded(raw, _Tool) or _Tool()).meta
    return bytes(meta.get("ui", b"")).startswith(b"{") or "ui/resourceUri" in meta
