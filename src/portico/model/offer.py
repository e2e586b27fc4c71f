"""What a provider offers, as immutable data with its bytes ready."""

from msgspec import Struct

from portico.model.version import Version


class HeaderParam(Struct, frozen=True):
    """A tool parameter that modern HTTP clients mirror into an `Mcp-Param-*` header."""

    header: str
    """The header's whole name, in lower case."""
    path: tuple[str, ...]
    kind: str
    """`string`, `integer` or `boolean`."""


class Item(Struct, frozen=True):
    """One tool, resource, template or prompt."""

    key: str
    """What it is asked for by: its name, URI or URI template."""
    name: str
    modern: bytes
    """Its definition as JSON, every field kept."""
    legacy: bytes
    """The same object unless a legacy version cannot carry it as it is."""
    early: bytes = b""
    """How versions before 2025-06-18 get it, if that differs from the other legacy ones."""
    header_params: tuple[HeaderParam, ...] = ()

    def form(self, version: Version) -> bytes:
        """Its definition as a version carries it."""
        if version.modern:
            return self.modern
        if version < Version.V2025_06_18 and self.early:
            return self.early
        return self.legacy


class Offer(Struct, frozen=True):
    """All that a provider offers at one time."""

    tools: tuple[Item, ...] = ()
    resources: tuple[Item, ...] = ()
    templates: tuple[Item, ...] = ()
    prompts: tuple[Item, ...] = ()
    completions: bool = False
    subscriptions: bool = False
    capabilities: frozenset[str] = frozenset()
    """Kinds to declare although nothing of them is there yet: `tools`, `resources`, `prompts`."""
