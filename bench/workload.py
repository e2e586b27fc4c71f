"""The workload of every contender: lists of tools, and requests as bytes."""

import json
import random
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
CATALOG = ROOT.parent / "shared" / "search" / "catalog" / "corpus.jsonl"

LEGACY = "2025-11-25"
MODERN = "2026-07-28"
SIZES = (50, 250, 6000)
TEXT = "The quick brown fox jumps over the lazy dog."

_META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1.0.0"},
}
_ECHO = {
    "name": "echo",
    "description": "Answer with the text that was sent.",
    "inputSchema": {
        "type": "object",
        "properties": {"text": {"type": "string", "description": "What to answer with."}},
        "required": ["text"],
    },
}
_VERBS = ("list", "get", "create", "update", "delete", "search", "archive", "export", "merge")
_THINGS = ("issue", "branch", "invoice", "customer", "ticket", "document", "event", "dashboard")
_FIELDS = ("title", "body", "labels", "since", "limit", "owner", "state", "page_token", "assignee")


@cache
def tools(count: int) -> list[dict[str, Any]]:
    """An echo tool and others like those of real servers; the same ones every time."""
    others = _from_catalog(count - 1) if count >= 1000 and CATALOG.is_file() else []
    others += [_made_up(number) for number in range(len(others), count - 1)]
    return [_ECHO, *others]


def _from_catalog(count: int) -> list[dict[str, Any]]:
    """Real tools of real servers, under names that every client takes, without broken schemas."""
    import jsonschema_rs

    found: list[dict[str, Any]] = []
    with CATALOG.open(encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            name = re.sub(r"[^A-Za-z0-9_-]", "_", row["id"])[:58]
            tool = {"name": f"{name}_{len(found)}", "description": row["description"]}
            if len(found) < count and jsonschema_rs.meta.is_valid(row["inputSchema"]):
                found.append({**tool, "inputSchema": row["inputSchema"]})
    return found


def _made_up(number: int) -> dict[str, Any]:
    chance = random.Random(number)
    verb, thing = chance.choice(_VERBS), chance.choice(_THINGS)
    fields = chance.sample(_FIELDS, 4)
    return {
        "name": f"{verb}_{thing}_{number}",
        "title": f"{verb.capitalize()} {thing}",
        "description": f"{verb.capitalize()} one {thing} or several of them, as the filters say, "
        "and answer with their identifiers and the fields that were asked for.",
        "inputSchema": {
            "type": "object",
            "properties": {field: _property(field, thing) for field in fields},
            "required": fields[:1],
        },
        "annotations": {"readOnlyHint": verb in {"list", "get", "search", "export"}},
    }


def _property(field: str, thing: str) -> dict[str, Any]:
    about = f"The {field.replace('_', ' ')} of the {thing}"
    if field == "limit":
        return {"type": "integer", "minimum": 1, "maximum": 100, "description": f"{about}s."}
    if field == "labels":
        return {"type": "array", "items": {"type": "string"}, "description": f"{about}."}
    if field == "state":
        return {"type": "string", "enum": ["open", "closed", "all"], "description": f"{about}."}
    return {"type": "string", "description": f"{about}, as the service's own pages show it."}


def encode(value: Any) -> bytes:
    """Compact JSON in UTF-8."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def list_request(id: int, *, modern: bool) -> bytes:
    """A request for the first page of tools."""
    return _request(id, "tools/list", {}, modern=modern)


def call_request(id: int, *, modern: bool) -> bytes:
    """A call of the echo tool."""
    return tool_request(id, "echo", {"text": TEXT}, modern=modern)


def tool_request(
    id: int, tool: str, arguments: Mapping[str, Any], *, modern: bool = False
) -> bytes:
    """A call of any tool."""
    params = {"name": tool, "arguments": arguments}
    return _request(id, "tools/call", params, modern=modern)


def listen_request(id: int) -> bytes:
    """The opening of a modern stream that is told of changed tools."""
    params = {"notifications": {"toolsListChanged": True}}
    return _request(id, "subscriptions/listen", params, modern=True)


def initialize_request(id: int) -> bytes:
    """The opening of a legacy session."""
    params = {
        "protocolVersion": LEGACY,
        "capabilities": {},
        "clientInfo": {"name": "bench", "version": "1.0.0"},
    }
    return _request(id, "initialize", params, modern=False)


INITIALIZED = encode({"jsonrpc": "2.0", "method": "notifications/initialized"})


def _request(id: int, method: str, params: dict[str, Any], *, modern: bool) -> bytes:
    if modern:
        params = {**params, "_meta": _META}
    message = {"jsonrpc": "2.0", "id": id, "method": method}
    return encode({**message, "params": params} if params else message)


class WrongAnswer(Exception):
    """A contender returned a wrong answer."""


def _by_name(tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(tools, key=lambda tool: str(tool.get("name")))


def check_list(answer: bytes, id: int, expected: list[dict[str, Any]]) -> None:
    """The answer must carry the id and every tool with every field, in any order."""
    shown = _result(answer, id).get("tools")
    if not isinstance(shown, list) or _by_name(shown) != _by_name(expected):
        there = len(shown) if isinstance(shown, list) else "no"
        raise WrongAnswer(f"{there} tools, or not the {len(expected)} that were given")


def check_call(answer: bytes, id: int) -> None:
    """The answer must carry the id and the text that was sent."""
    content = _result(answer, id).get("content")
    if content != [{"type": "text", "text": TEXT}]:
        raise WrongAnswer(f"the echo came back as {content!r}")


def _result(answer: bytes, id: int) -> dict[str, Any]:
    try:
        message = json.loads(answer)
    except ValueError:
        raise WrongAnswer(f"no JSON: {answer[:200]!r}") from None
    if message.get("id") != id or "result" not in message:
        raise WrongAnswer(f"no result for id {id}: {answer[:200]!r}")
    result: dict[str, Any] = message["result"]
    return result
