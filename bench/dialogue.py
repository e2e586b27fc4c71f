"""A model's way through the gateway for one task: search, describe, execute."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench.gateway import EXECUTE, SEARCH, Fleet, GatewayPipe, words
from bench.workload import WrongAnswer, encode

DESCRIBE = "describe_tool"
TASKS = 8
_SAMPLES = {"integer": 10, "number": 1.5, "boolean": True, "array": [], "object": {}}
_DEEP = 4


@dataclass(frozen=True)
class Task:
    """The arguments of each call, and the results of the first two."""

    search: dict[str, Any]
    found: dict[str, Any]
    describe: dict[str, Any]
    described: dict[str, Any]
    execute: dict[str, Any]

    def texts(self) -> dict[str, str]:
        """The text that a model writes and reads, by step; of a result only one form."""
        return {
            "search": _json(self.search),
            "found, text": _text(self.found),
            "found, structured": _json(self.found["structuredContent"]),
            "describe": _json(self.describe),
            "described, text": _text(self.described),
            "described, structured": _json(self.described["structuredContent"]),
            "execute": _json(self.execute),
        }


def tasks(server: GatewayPipe, fleet: Fleet) -> list[Task]:
    """Tasks for tools here and there among those that are served; always the same."""
    tools = [tool["name"] for name in fleet.names for tool in fleet.tools(name)]
    return [task(server, words(name)) for name in tools[:: -(-len(tools) // TASKS)]]


def task(server: GatewayPipe, need: str) -> Task:
    """One way, from a need to the call of the first tool that is found."""
    search = {"query": need}
    found = server.use(SEARCH, **search)
    first = found["structuredContent"]["results"][0]["tools"][:1]
    if not first:
        raise WrongAnswer(f"nothing found for {need!r}")
    describe = {"name": first[0]["name"]}
    described = server.use(DESCRIBE, **describe)
    schema = described["structuredContent"]["tools"][0]["definition"]["inputSchema"]
    execute = {**describe, "arguments": sample(schema)}
    server.use(EXECUTE, **execute)  # it must be a call that works
    return Task(search, found, describe, described, execute)


def sample(schema: Any, depth: int = 0) -> Any:
    """Return a value that roughly matches a schema."""
    if not isinstance(schema, Mapping) or depth > _DEEP:
        return "example"
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type")
    if isinstance(schema.get("properties"), Mapping) and kind in (None, "object"):
        properties, required = schema["properties"], schema.get("required") or []
        return {key: sample(properties.get(key), depth + 1) for key in required}
    return _SAMPLES.get(kind if isinstance(kind, str) else "", "example")


def _text(result: Mapping[str, Any]) -> str:
    return "\n".join(block["text"] for block in result["content"])


def _json(value: Any) -> str:
    return encode(value).decode()
