"""Short definitions of tools with a page (MCP Apps), for clients that find all others by search.

A client shows a page only for a tool that is listed, so these are listed beside the meta-tools.
Their whole definitions are found as those of any other tool.
"""

from typing import Any

from portico.core.model.offer import Listed
from portico.core.protocol.codec import decoded, encode

MAX_BYTES = 2_400
"""For all of them: at most 1,000 tokens, also of names in hexadecimal or Chinese."""
_MAX_DESCRIPTION = 100
_KEPT = ("type", "enum", "x-mcp-header")
"""The keys of an argument's schema that stay."""
_MAX_ENUM = 8
_PAGE_KEYS = ("ui", "ui/resourceUri")


def shortened_tools(tools: Listed) -> Listed:
    """Return the tools with the longest definitions that fit: with a description and arguments,
    else without them. Only the search finds the tools beyond that limit."""
    for make in (_described, _bare):
        made = [make(raw) for raw in tools.items]
        if sum(map(len, made)) <= MAX_BYTES:
            return Listed(items=tuple(made), keys=tools.keys)
    kept: list[bytes] = []
    size = 0
    for raw in made:
        size += len(raw)
        if size > MAX_BYTES:
            break
        kept.append(raw)
    return Listed(items=tuple(kept), keys=tools.keys[: len(kept)])


def _described(raw: bytes) -> bytes:
    whole = decoded(raw, dict[str, Any]) or {}
    short = _page(whole)
    description = whole.get("description")
    if isinstance(description, str) and description.strip():
        short["description"] = _first_sentence(description)
    short["inputSchema"] = _arguments(whole.get("inputSchema"))
    if isinstance(whole.get("annotations"), dict):
        short["annotations"] = whole["annotations"]
    return encode(short)


def _bare(raw: bytes) -> bytes:
    short = _page(decoded(raw, dict[str, Any]) or {})
    return encode({**short, "inputSchema": {"type": "object"}})


def _page(whole: dict[str, Any]) -> dict[str, Any]:
    """Return the name of a tool and the URI of its page."""
    meta = whole.get("_meta")
    known = meta if isinstance(meta, dict) else {}
    page = {key: known[key] for key in _PAGE_KEYS if key in known}
    return {"name": whole.get("name", ""), "_meta": page}


def _first_sentence(description: str) -> str:
    words = " ".join(description.split())
    sentence = words.partition(". ")[0].removesuffix(".")
    cut = f"{sentence[: _MAX_DESCRIPTION - 1].rstrip()}…"
    return sentence if len(sentence) <= _MAX_DESCRIPTION else cut


def _arguments(schema: Any) -> dict[str, Any]:
    """Return the names and types of the arguments, without descriptions and nested schemas."""
    found: dict[str, Any] = {"type": "object"}
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if isinstance(properties, dict) and properties:
        found["properties"] = {
            name: _argument(one) if isinstance(one, dict) else {}
            for name, one in properties.items()
        }
        if isinstance(schema.get("required"), list):
            found["required"] = schema["required"]
    return found


def _argument(schema: dict[str, Any]) -> dict[str, Any]:
    kept = {key: schema[key] for key in _KEPT if key in schema}
    enum = kept.get("enum")
    if isinstance(enum, list) and len(enum) > _MAX_ENUM:
        del kept["enum"]
    return kept
