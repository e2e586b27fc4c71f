"""The offer of one server in a gateway, with its exposed names."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from portico.core.catalog.ui_pages import has_page, page_uris, with_page_uris
from portico.core.model.offer import Listed, Offer
from portico.core.protocol.codec import decoded, may_mention
from portico.core.protocol.eras import members
from portico.core.protocol.tasks import (
    EXTENSION,
    creates_tasks,
    with_task_support,
    without_task_support,
)

if TYPE_CHECKING:
    from portico.core.catalog.resource_routing import ResourceRouting
    from portico.core.definitions.schema import Schema

_MAX_UI = 50
"""The limit for each server: models read these in every conversation. Search finds the rest."""


class NamespacedOffer:
    """The offer of one server, with the names that the gateway exposes."""

    def __init__(self, server: str, offer: Offer, name_limit: int | None = None) -> None:
        """Without a limit, names are not prefixed."""
        self.server = server
        self.offer = offer
        self._limit = name_limit

    def listed(self, kind: str) -> Listed:
        """Return one of its lists, which may be empty."""
        return self.offer.listed(kind)

    @cached_property
    def tools(self) -> Mapping[str, str]:
        """The exposed name of each tool."""
        return self._names("tools")

    @cached_property
    def prompts(self) -> Mapping[str, str]:
        """The exposed name of each prompt."""
        return self._names("prompts")

    def names(self, kind: str) -> Mapping[str, str]:
        """Return the exposed names of `tools` or `prompts`."""
        return self.tools if kind == "tools" else self.prompts

    def _names(self, kind: str) -> Mapping[str, str]:
        keys = self.listed(kind).keys
        if self._limit is None:
            return dict(zip(keys, keys, strict=True))
        from portico.core.catalog.exposed_names import exposed_names

        return exposed_names(self.server, keys, self._limit)

    @cached_property
    def with_ui(self) -> Sequence[str]:
        """The exposed names of its tools that have a UI (MCP Apps), up to a limit."""
        listed = self.listed("tools")
        pairs = zip(listed.keys, listed.items, strict=True)
        found = (self.tools[key] for key, raw in pairs if has_page(raw))
        return tuple(islice(found, _MAX_UI))

    @cached_property
    def pages(self) -> Sequence[str]:
        """The URIs of the pages of its tools."""
        return tuple(
            dict.fromkeys(uri for raw in self.listed("tools").items for uri in page_uris(raw))
        )

    def with_pages(self, shown: Callable[[str], str]) -> "NamespacedOffer":
        """Return the same offer with other URIs of its tools' pages."""
        if all(shown(uri) == uri for uri in self.pages):
            return self
        tools = self.listed("tools")
        items = tuple(with_page_uris(raw, shown) for raw in tools.items)
        return self.with_lists({**self.offer.lists, "tools": Listed(items=items, keys=tools.keys)})

    @cached_property
    def version(self) -> bytes:
        """A digest of its tools."""
        listed = self.listed("tools")
        return blake2b(b"\0".join((self.server.encode(), *listed.items)), digest_size=16).digest()

    def raw(self, kind: str, key: str) -> bytes:
        """Return a definition, a tool with its task support (2025-11-25)."""
        raw = self.listed(kind).items[self._positions(kind)[key]]
        if kind != "tools" or self._has_own_support:
            return raw
        return with_task_support(raw) if self._has_tasks else without_task_support(raw)

    @cached_property
    def _has_tasks(self) -> bool:
        return can_create_tasks(self.offer)

    @cached_property
    def _has_own_support(self) -> bool:
        """True if the definitions themselves state which tools run as tasks."""
        is_ours = "tasks" in self.offer.declared
        return is_ours or (self._has_tasks and not self.offer.version.modern)

    def definition(self, tool: str) -> dict[str, Any]:
        """Return a tool's definition, without its task support; empty if it is not an object."""
        try:
            raw = self.listed("tools").items[self._positions("tools")[tool]]
            found = msgspec.json.decode(without_task_support(raw))
        except (msgspec.DecodeError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def renamed(self, kind: str, key: str, field: str, exposed: str) -> bytes:
        """Return a definition with its exposed name or URI."""
        raw = self.raw(kind, key)
        if key == exposed:
            return raw
        return with_field(raw, field, exposed)

    def with_lists(self, lists: Mapping[str, Listed]) -> "NamespacedOffer":
        """Return the same offer with a part of its lists."""
        seen = NamespacedOffer(
            self.server, msgspec.structs.replace(self.offer, lists=lists), self._limit
        )
        # Exposed names depend on all names of the server, so they are kept, not computed again.
        seen.tools = {key: self.tools[key] for key in seen.listed("tools").keys}
        seen.prompts = {key: self.prompts[key] for key in seen.listed("prompts").keys}
        return seen

    def hides(self, uri: str, seen: "NamespacedOffer") -> bool:
        """True if this URI belongs to a resource or template that is not visible."""
        key = self._resources.key(uri)
        there = seen._resources
        return key is not None and key not in there.listed and key not in there.templates

    @cached_property
    def _resources(self) -> "ResourceRouting":
        listed = (self.listed("resources").keys, self.listed("templates").keys)
        from portico.core.catalog.resource_routing import ResourceRouting, ServerResources

        return ResourceRouting([ServerResources(self.server, *listed)])

    def schema(self, tool: str) -> "Schema | None":
        """Return the schema of a tool's arguments, or None if it is not usable."""
        if tool not in self.schemas:
            from portico.core.definitions.definition_error import SchemaError
            from portico.core.definitions.schema import Schema

            source = self.definition(tool).get("inputSchema")
            schema = Schema(source, foreign=True) if isinstance(source, dict) else None
            try:
                if schema is not None:
                    schema.check()
            except SchemaError:
                schema = None  # the server may still accept its arguments
            self.schemas[tool] = schema
        return self.schemas[tool]

    @cached_property
    def schemas(self) -> "dict[str, Schema | None]":
        return {}

    def _positions(self, kind: str) -> Mapping[str, int]:
        known = self._positions_by_kind.get(kind)
        if known is None:
            keys = self.listed(kind).keys
            known = self._positions_by_kind[kind] = {key: place for place, key in enumerate(keys)}
        return known

    @cached_property
    def _positions_by_kind(self) -> dict[str, Mapping[str, int]]:
        return {}


def with_field(raw: bytes, field: str, value: str) -> bytes:
    """Return a definition with another value in one field."""
    fields = members(raw)
    fields[field] = msgspec.Raw(msgspec.json.encode(value))
    return msgspec.json.encode(fields)


def can_create_tasks(offer: Offer) -> bool:
    """True if a server declares that calls of its tools can be tasks."""
    if "tasks" in offer.declared:
        return True
    capabilities = bytes(members(offer.introduction).get("capabilities", b""))
    if not may_mention(capabilities, b"tasks"):
        return False
    if offer.version.modern:
        return EXTENSION in members(members(capabilities).get("extensions", b""))
    return creates_tasks(decoded(capabilities, dict[str, Any]) or {})
