"""Registered tools, resources, templates and prompts: definition, encoded bytes, function."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import msgspec

from portico.core.definitions import load
from portico.core.definitions.schema import Schema, SchemaViolation
from portico.core.definitions.templates import UriTemplate
from portico.library.functions.invoke import Invocation
from portico.library.functions.task_mode import TaskMode, defined_mode, task_support

if TYPE_CHECKING:
    from portico.core.definitions.binding import Derived

Source = str | PathLike[str] | bytes | Sequence[Any]
"""Definitions: the path of a file, its JSON, or objects."""


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

    def validate(self, arguments: Mapping[str, Any]) -> list[SchemaViolation]:
        """Return how arguments violate the input schema, in words that a model can act on; an
        empty list if they are valid. Raises SchemaError if the schema is not valid."""
        return self.input.problems(arguments)


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


def load_tools(source: Source) -> list[Tool]:
    """Load tools from a file, bytes or objects; raises DefinitionError."""
    return [Tool(one) for one in load.load_tools(source)]


def load_resources(source: Source) -> list[Resource]:
    """Load resources from a file, bytes or objects; raises DefinitionError."""
    return [Resource(one) for one in load.load_resources(source)]


def load_templates(source: Source) -> list[Template]:
    """Load resource templates from a file, bytes or objects; raises DefinitionError."""
    return [Template(one) for one in load.load_templates(source)]


def load_prompts(source: Source) -> list[Prompt]:
    """Load prompts from a file, bytes or objects; raises DefinitionError."""
    return [Prompt(one) for one in load.load_prompts(source)]
