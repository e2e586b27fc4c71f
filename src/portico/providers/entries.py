"""The things a server's author registers, each with its definition, its bytes and its function."""

from typing import TYPE_CHECKING, Any

import msgspec

from portico.definitions.schema import Schema
from portico.definitions.templates import UriTemplate
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
        self.raw = msgspec.json.encode(definition)


class Resource:
    """One resource with a URI of its own."""

    def __init__(self, definition: dict[str, Any]) -> None:
        self.uri: str = definition["uri"]
        self.name: str = definition["name"]
        self.mime_type: str = definition.get("mimeType", "")
        self.definition = definition
        self.invoke: Invocation | None = None
        self.raw = msgspec.json.encode(definition)


class Template:
    """A family of resources whose URIs follow a pattern."""

    def __init__(self, definition: dict[str, Any]) -> None:
        self.uri: str = definition["uriTemplate"]
        self.name: str = definition["name"]
        self.mime_type: str = definition.get("mimeType", "")
        self.pattern = UriTemplate(self.uri)
        self.definition = definition
        self.invoke: Invocation | None = None
        self.raw = msgspec.json.encode(definition)


class Prompt:
    """One prompt and the arguments it takes."""

    def __init__(self, definition: dict[str, Any]) -> None:
        self.name: str = definition["name"]
        self.description: str | None = definition.get("description")
        self.arguments: list[dict[str, Any]] = definition.get("arguments") or []
        self.definition = definition
        self.invoke: Invocation | None = None
        self.raw = msgspec.json.encode(definition)
