"""The tools a model sees instead of thousands: to find one, to read one, to call one."""

from collections.abc import Mapping
from typing import Any

from msgspec import Raw, Struct, field

from portico.model.message import Request
from portico.protocol.codec import decoded, encode

SEARCH, DESCRIBE, EXECUTE = "search_tools", "describe_tool", "execute_tool"
REFRESH, STATUS = "refresh_tools", "gateway_status"
NAMES = (SEARCH, DESCRIBE, EXECUTE, REFRESH, STATUS)

OWN_QUERY = "portico/ownQuery"
"""In `_meta`: a command of Portico asks, on its way to what its user wants."""
MAX_LIMIT = 50
_META = {"anthropic/alwaysLoad": True}
"""Without it, clients that hide tools behind a search of their own would hide these."""
_READ_ONLY = {"readOnlyHint": True, "openWorldHint": False}


class _CallMeta(Struct):
    meta: dict[str, Raw] = field(default_factory=dict, name="_meta")


def is_own_query(request: Request) -> bool:
    """True if a command of Portico asks one of these tools. `execute_tool` is never such a query:
    no call of a server may be hidden from the log."""
    if OWN_QUERY.encode() not in request.params or request.name == EXECUTE:
        return False
    asked = decoded(request.params, _CallMeta) or _CallMeta()
    return bytes(asked.meta.get(OWN_QUERY, b"")) == b"true"


def meta_tools(behind: str, tools: int, default_limit: int) -> dict[str, bytes]:
    """Their definitions by name; `behind` tells of the servers, `tools` counts theirs."""
    found = (
        _search(behind, tools, default_limit),
        _tool(
            DESCRIBE,
            "Full definition of tools found by search_tools: schema, server, annotations.",
            {"name": _text(), "names": _texts("several at once")},
            annotations=_READ_ONLY,
        ),
        _tool(
            EXECUTE,
            "Call a tool found by search_tools. Its result comes back unchanged.",
            {
                "name": _text("as found, e.g. server__tool"),
                "arguments": {"type": "object", "description": "the tool's own arguments"},
                "timeout_s": {"type": "number", "exclusiveMinimum": 0},
            },
            required=("name",),
        ),
        _tool(
            REFRESH,
            "Ask servers again which tools they have.",
            {"server": _text("only this one")},
            annotations=_READ_ONLY,
        ),
        _tool(
            STATUS,
            "Which servers there are, and how each of them is.",
            {},
            annotations=_READ_ONLY,
        ),
    )
    return dict(zip(NAMES, map(encode, found), strict=True))


def _search(behind: str, tools: int, default_limit: int) -> dict[str, Any]:
    words = (
        f"Find the right one among {tools} tools. Servers: {behind}. "
        "Search whenever a task may need any of them; ask for one need at a time "
        "('send an email'), several needs as `queries`. Then call execute_tool."
    )
    limit = {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": default_limit}
    properties = {
        "query": _text("what you need, in plain words"),
        "queries": _texts("several needs at once"),
        "limit": limit,
        "server": _text("only this server"),
        "detail": {"enum": ["brief", "full"], "default": "brief"},
    }
    return _tool(SEARCH, words, properties, annotations=_READ_ONLY)


def _tool(
    name: str,
    description: str,
    properties: Mapping[str, Any],
    *,
    required: tuple[str, ...] = (),
    annotations: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    tool: dict[str, Any] = {"name": name, "description": description, "inputSchema": schema}
    if annotations:
        tool["annotations"] = annotations
    tool["_meta"] = _META
    return tool


def _text(description: str = "") -> dict[str, Any]:
    return {"type": "string", "description": description} if description else {"type": "string"}


def _texts(description: str) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string"}, "description": description}
