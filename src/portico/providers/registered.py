"""The things a server's author registers, each with its definition, its bytes and its function."""

from typing import TYPE_CHECKING, Any

import msgspec

from portico.definitions.schema import Schema
from portico.definitions.templates import UriTemplate
from portico.providers.invoke import Invocation

if TYPE_CHECKING:
    from portico.definitions.binding import Derived


class Registered:
    """A definition, and the function that answers for it once there is one."""

    def __init__(self, definition: dict[str, Any]) -> None:
        self.name: str = definition["name"]
        self.definition = definition
        self.invoke: Invocation | None = None
        self.raw = msgspec.json.encode(definition)


class Tool(Registered):
    """One tool: its definition compiled as far as calls need it."""

    def __init__(self, definition: dict[str, Any], derived: "Derived | None" = None) -> None:
        super().__init__(definition)
        self.wrapped = derived is not None and derived.wraps_result
        self.input = Schema(definition["inputSchema"], where=f"tool {self.name}: inputSchema")
        output = definition.get("outputSchema")
        self.output = (
            None if output is None else Schema(output, where=f"tool {self.name}: outputSchema")
        )


class Resource(Registered):
    """One resource with a URI of its own."""

    def __init__(self, definition: dict[str, Any]) -> None:
        super().__init__(definition)
        self.uri: str = definition["uri"]
        self.mime_type: str = definition.get("mimeType", "")


class Template(Registered):
    """A family of resources whose URIs follow a pattern."""

    def __init__(self, definition: dict[str, Any]) -> None:
        super().__init__(definition)
        self.uri: str = definition["uriTemplate"]
        self.mime_type: str = definition.get("mimeType", "")
        self.pattern = UriTemplate(self.uri)


class Prompt(Registered):
    """One prompt and the arguments it takes."""

    def __init__(self, definition: dict[str, Any]) -> None:
        super().__init__(definition)
        self.description: str | None = definition.get("description")
        self.arguments: list[dict[str, Any]] = definition.get("arguments") or []
