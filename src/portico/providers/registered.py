"""Registered tools, resources, templates and prompts: definition, encoded bytes, function."""

from typing import TYPE_CHECKING, Any

import msgspec

from portico.definitions.schema import Schema
from portico.definitions.templates import UriTemplate
from portico.providers.invoke import Invocation
from portico.providers.task_mode import TaskMode, defined_mode, task_support

if TYPE_CHECKING:
    from portico.definitions.binding import Derived


class Registered:
    """A definition, and its function once it is registered."""

    def __init__(self, definition: dict[str, Any]) -> None:
        self.name: str = definition["name"]
        self.definition = definition
        self.invoke: Invocation | None = None
        self.raw = msgspec.json.encode(definition)


class Tool(Registered):
    """A tool, with its schemas compiled for calls."""

    def __init__(
        self,
        definition: dict[str, Any],
        derived: "Derived | None" = None,
        mode: TaskMode | None = None,
    ) -> None:
        super().__init__(definition if mode is None else _with_support(definition, mode))
        self.wrapped = derived is not None and derived.wraps_result
        self.mode = mode or defined_mode(definition)
        self.input = Schema(definition["inputSchema"], where=f"tool {self.name}: inputSchema")
        output = definition.get("outputSchema")
        self.output = (
            None if output is None else Schema(output, where=f"tool {self.name}: outputSchema")
        )


class Resource(Registered):
    """A resource with a fixed URI."""

    def __init__(self, definition: dict[str, Any]) -> None:
        super().__init__(definition)
        self.uri: str = definition["uri"]
        self.mime_type: str = definition.get("mimeType", "")


class Template(Registered):
    """Resources whose URIs match a pattern."""

    def __init__(self, definition: dict[str, Any]) -> None:
        super().__init__(definition)
        self.uri: str = definition["uriTemplate"]
        self.mime_type: str = definition.get("mimeType", "")
        self.pattern = UriTemplate(self.uri)


class Prompt(Registered):
    """A prompt and its arguments."""

    def __init__(self, definition: dict[str, Any]) -> None:
        super().__init__(definition)
        self.description: str | None = definition.get("description")
        self.arguments: list[dict[str, Any]] = definition.get("arguments") or []


def _with_support(definition: dict[str, Any], mode: TaskMode) -> dict[str, Any]:
    return {**definition, "execution": task_support(mode)}
