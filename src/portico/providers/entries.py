"""The things a server's author registers, each with its definition, its bytes and its function."""

from typing import TYPE_CHECKING, Any

import msgspec

from portico.definitions.headers import header_params
from portico.definitions.schema import Schema
from portico.definitions.templates import UriTemplate
from portico.model.offer import Item
from portico.providers.invoke import Invocation

if TYPE_CHECKING:
    from portico.definitions.binding import Derived


class Tool:
    """One tool: its definition compiled as far as calls need it."""

    def __init__(self, definition: dict[str, Any], derived: "Derived | None" = None) -> None:
        self.name: str = definition["name"]
        self.definition = definition
        self.invoke: Invocation | None = None
        self.wrapped = derived is not None and derived.wraps_result
        self.input = Schema(definition["inputSchema"], where=f"tool {self.name}: inputSchema")
        output = definition.get("outputSchema")
        self.output = (
            None if output is None else Schema(output, where=f"tool {self.name}: outputSchema")
        )
        self.item = _tool_item(definition)


class Resource:
    """One resource with a URI of its own."""

    def __init__(self, definition: dict[str, Any]) -> None:
        self.uri: str = definition["uri"]
        self.name: str = definition["name"]
        self.mime_type: str = definition.get("mimeType", "")
        self.definition = definition
        self.invoke: Invocation | None = None
        raw = msgspec.json.encode(definition)
        self.item = Item(self.uri, self.name, raw, raw)


class Template:
    """A family of resources whose URIs follow a pattern."""

    def __init__(self, definition: dict[str, Any]) -> None:
        self.uri: str = definition["uriTemplate"]
        self.name: str = definition["name"]
        self.mime_type: str = definition.get("mimeType", "")
        self.pattern = UriTemplate(self.uri)
        self.definition = definition
        self.invoke: Invocation | None = None
        raw = msgspec.json.encode(definition)
        self.item = Item(self.uri, self.name, raw, raw)


class Prompt:
    """One prompt and the arguments it takes."""

    def __init__(self, definition: dict[str, Any]) -> None:
        self.name: str = definition["name"]
        self.description: str | None = definition.get("description")
        self.arguments: list[dict[str, Any]] = definition.get("arguments") or []
        self.definition = definition
        self.invoke: Invocation | None = None
        raw = msgspec.json.encode(definition)
        self.item = Item(self.name, self.name, raw, raw)


def _tool_item(definition: dict[str, Any]) -> Item:
    """Output schemas came with 2025-06-18, and described objects only until 2026-07-28."""
    name: str = definition["name"]
    modern = legacy = msgspec.json.encode(definition)
    early = b""
    output = definition.get("outputSchema")
    if output is not None:
        early = msgspec.json.encode({k: v for k, v in definition.items() if k != "outputSchema"})
        if not isinstance(output, dict) or output.get("type") != "object":
            legacy = early
    # Few tools have any, and looking for the word is far quicker than walking the schema.
    mirrored = header_params(definition["inputSchema"]) if b'"x-mcp-header"' in modern else ()
    return Item(name, name, modern, legacy, early, mirrored)
